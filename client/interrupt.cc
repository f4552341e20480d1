// SPDX-License-Identifier: Apache-2.0
#include "client/interrupt.h"

#include <csignal>
#include <cstdint>
#include <poll.h>
#include <string_view>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <utility>

namespace sparsed::client {
namespace {

int BlockedSignalsFd() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signalfd(-1, &signals, SFD_CLOEXEC);
}

[[noreturn]] void EndProcess(int signal) {
  constexpr std::string_view kShowCursorPlain = "\033[?25h\033[0m\n";
  if (isatty(STDOUT_FILENO) != 0) {
    // Best effort: the process ends either way.
    [[maybe_unused]] const ssize_t written =
        write(STDOUT_FILENO, kShowCursorPlain.data(), kShowCursorPlain.size());
  }
  _exit(128 + signal);
}

}  // namespace

Interrupt::Interrupt()
    : signal_fd_(BlockedSignalsFd()),
      stop_fd_(eventfd(0, EFD_CLOEXEC)),
      watcher_([this] { Watch(); }) {}

Interrupt::~Interrupt() {
  const uint64_t one = 1;
  if (write(stop_fd_, &one, sizeof one) == static_cast<ssize_t>(sizeof one)) watcher_.join();
  close(stop_fd_);
  close(signal_fd_);
}

void Interrupt::Watch() {
  pollfd fds[] = {{stop_fd_, POLLIN, 0}, {signal_fd_, POLLIN, 0}};
  while (true) {
    if (poll(fds, 2, -1) < 0) continue;
    if (fds[0].revents != 0) return;
    signalfd_siginfo info;
    if (read(signal_fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      OnSignal(static_cast<int>(info.ssi_signo));
    }
  }
}

void Interrupt::OnSignal(int signal) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!handler_ || raised_.exchange(true)) EndProcess(signal);
  handler_();
}

Interrupt::Scope::Scope(Interrupt& interrupt, std::function<void()> handler)
    : interrupt_(interrupt) {
  const std::lock_guard<std::mutex> lock(interrupt_.mutex_);
  interrupt_.raised_ = false;
  interrupt_.handler_ = std::move(handler);
}

Interrupt::Scope::~Scope() {
  const std::lock_guard<std::mutex> lock(interrupt_.mutex_);
  interrupt_.handler_ = nullptr;
}

}  // namespace sparsed::client
