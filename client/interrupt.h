// SPDX-License-Identifier: Apache-2.0
// Interrupt: Ctrl-C and SIGTERM as events instead of sudden death.
//
//   Interrupt interrupt;                                        // first thing in main
//   { Interrupt::Scope scope(interrupt, [&] { context.TryCancel(); });  // Ctrl-C now cancels
//     status = stub.Generate(&context, request, &response); }
//
// A signal outside any Scope, or a second one inside it, ends the process with 128 + signal number
// after giving the terminal its cursor back. Handlers run on the watcher thread, never in a signal
// handler, so they may lock and call gRPC. One Interrupt per process; at most one Scope at a time.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

namespace sparsed::client {

class Interrupt {
 public:
  // Blocks the signals in this thread and in all threads it starts from now on.
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  class Scope {
   public:
    Scope(Interrupt& interrupt, std::function<void()> handler);
    // After this the handler neither runs nor will run.
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    // True once a signal arrived in this scope.
    bool raised() const { return interrupt_.raised_; }

   private:
    Interrupt& interrupt_;
  };

 private:
  void Watch();
  void OnSignal(int signal);

  std::mutex mutex_;
  std::function<void()> handler_;  // guarded by mutex_; empty outside a Scope
  std::atomic<bool> raised_ = false;
  const int signal_fd_;
  const int stop_fd_;
  std::thread watcher_;
};

}  // namespace sparsed::client
