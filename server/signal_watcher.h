// SPDX-License-Identifier: Apache-2.0
// SignalWatcher: turns SIGTERM and SIGINT into StopRequest::Request calls, on a thread of its own.
//
//   StopRequest stop;
//   SignalWatcher signals(&stop);  // first thing in main: threads started later inherit its mask
//
// The signals are blocked and waited for, so nothing runs in a signal handler. A third one kills
// the process as it would any other, for a step that will not end. One per process.
#pragma once

#include <atomic>
#include <csignal>
#include <thread>

#include "server/stop_request.h"

namespace sparsed {

class SignalWatcher {
 public:
  explicit SignalWatcher(StopRequest* stop);
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  void Run();

  StopRequest* const stop_;
  sigset_t signals_;
  std::atomic<int> received_ = 0;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace sparsed
