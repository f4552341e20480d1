// SPDX-License-Identifier: Apache-2.0
// StopRequest: whether, and how urgently, the process was asked to stop.
//
//   stop.Request();                        // asked once: finish what is running
//   stop.SetOnUrgent([&] { loop.Stop(); });  // asked again: drop it
//   stop.Wait();
//
// Any thread.
#pragma once

#include <functional>

#include "engine/base/mutex.h"

namespace sparsed {

class StopRequest {
 public:
  void Request();
  bool requested() const;
  void Wait();  // until the first request

  // Runs on the thread of the second request; at once, if that has come already. nullptr: nothing.
  void SetOnUrgent(std::function<void()> on_urgent);

 private:
  mutable Mutex mutex_;
  CondVar asked_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
  std::function<void()> on_urgent_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsed
