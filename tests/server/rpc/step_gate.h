// SPDX-License-Identifier: Apache-2.0
// StepGate: lets a test hold a FakeEngine at the start of a step.
//   engine.on_step = [&gate](auto) { gate.Enter(); };
//   gate.Close();  …  gate.WaitUntilHeld();  …  gate.Open();
// Open at first. Enter by the step loop, the rest by the test.
#pragma once

#include "engine/base/mutex.h"

namespace sparsed::testing {

class StepGate {
 public:
  void Enter() {
    MutexLock lock(&mutex_);
    ++entered_;
    held_ = !open_ && passes_ == 0;
    changed_.NotifyAll();
    while (!open_ && passes_ == 0) changed_.Wait(&mutex_);
    if (!open_) --passes_;
    held_ = false;
  }
  void Close() {
    MutexLock lock(&mutex_);
    open_ = false;
  }
  void Open() {
    MutexLock lock(&mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  void LetOneThrough() {
    MutexLock lock(&mutex_);
    ++passes_;
    changed_.NotifyAll();
  }
  void WaitUntilHeld() {
    MutexLock lock(&mutex_);
    while (!held_) changed_.Wait(&mutex_);
  }
  // Steps that have begun.
  int entered() const {
    MutexLock lock(&mutex_);
    return entered_;
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  int passes_ ABSL_GUARDED_BY(mutex_) = 0;
  int entered_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sparsed::testing
