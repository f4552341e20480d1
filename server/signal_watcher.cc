// SPDX-License-Identifier: Apache-2.0
#include "server/signal_watcher.h"

#include <cstdlib>
#include <pthread.h>

#include "server/log.h"

namespace sparsed {

SignalWatcher::SignalWatcher(StopRequest* stop) : stop_(stop) {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // a client that hangs up is an error code, not a signal
  thread_ = std::thread([this] { Run(); });
}

SignalWatcher::~SignalWatcher() {
  ending_ = true;
  // Wakes sigwait. After the second signal the thread ends by itself, and would die of this.
  if (received_ < 2) pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
}

void SignalWatcher::Run() {
  while (received_ < 2) {
    int signal = 0;
    if (sigwait(&signals_, &signal) != 0 || ending_) return;
    Log(LogLevel::kInfo, "signal", {{"name", signal == SIGTERM ? "SIGTERM" : "SIGINT"}});
    if (++received_ == 2) pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
    stop_->Request();
  }
}

}  // namespace sparsed
