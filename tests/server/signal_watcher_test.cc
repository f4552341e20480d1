// SPDX-License-Identifier: Apache-2.0
// Each case runs in a child process: signals belong to the whole of one.
#include "server/signal_watcher.h"

#include <csignal>
#include <cstdlib>
#include <future>
#include <unistd.h>

#include <gtest/gtest.h>

namespace sparsed {
namespace {

// Code 0 if `signal` stops a process that waits, 1 if it was stopped before.
[[noreturn]] void WaitForSignal(int signal) {
  StopRequest stop;
  {
    const SignalWatcher watcher(&stop);
    if (stop.requested()) std::_Exit(1);
    kill(getpid(), signal);
    stop.Wait();
  }
  std::_Exit(0);
}

[[noreturn]] void WaitForSecondSignal() {
  StopRequest stop;
  const SignalWatcher watcher(&stop);
  std::promise<void> urgent;
  stop.SetOnUrgent([&] { urgent.set_value(); });
  kill(getpid(), SIGTERM);
  stop.Wait();
  kill(getpid(), SIGTERM);
  urgent.get_future().wait();
  std::_Exit(0);
}

[[noreturn]] void BlockInUrgentAndSignalAgain() {
  StopRequest stop;
  const SignalWatcher watcher(&stop);
  std::promise<void> urgent;
  stop.SetOnUrgent([&] {
    urgent.set_value();
    for (;;) pause();
  });
  kill(getpid(), SIGTERM);
  stop.Wait();
  kill(getpid(), SIGTERM);
  urgent.get_future().wait();
  kill(getpid(), SIGTERM);
  for (;;) pause();
}

TEST(SignalWatcherTest, SigtermAsksToStop) {
  EXPECT_EXIT(WaitForSignal(SIGTERM), ::testing::ExitedWithCode(0), "");
}

TEST(SignalWatcherTest, SigintAsksToStop) {
  EXPECT_EXIT(WaitForSignal(SIGINT), ::testing::ExitedWithCode(0), "");
}

TEST(SignalWatcherTest, TheSecondSignalIsUrgent) {
  EXPECT_EXIT(WaitForSecondSignal(), ::testing::ExitedWithCode(0), "");
}

TEST(SignalWatcherTest, TheThirdSignalKills) {
  EXPECT_EXIT(BlockInUrgentAndSignalAgain(), ::testing::KilledBySignal(SIGTERM), "");
}

TEST(StopRequestTest, AnUrgentRequestThatCameEarlyIsNotLost) {
  StopRequest stop;
  stop.Request();
  stop.Request();
  bool called = false;
  stop.SetOnUrgent([&] { called = true; });
  EXPECT_TRUE(called);
}

TEST(StopRequestTest, TheFirstRequestIsNotUrgent) {
  StopRequest stop;
  bool called = false;
  stop.SetOnUrgent([&] { called = true; });
  EXPECT_FALSE(stop.requested());
  stop.Request();
  EXPECT_TRUE(stop.requested());
  EXPECT_FALSE(called);
  stop.SetOnUrgent(nullptr);
}

}  // namespace
}  // namespace sparsed
