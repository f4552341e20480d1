// SPDX-License-Identifier: Apache-2.0
#include "server/mailbox.h"

#include <algorithm>
#include <future>
#include <numeric>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"

namespace sparsed {
namespace {

using ::sparsed::testing::FakeClock;
using ::testing::ElementsAre;

constexpr Duration kLimit = std::chrono::seconds(10);

ProgressEvent Progress(int32_t step, int32_t total_steps, std::vector<int32_t> committed,
                       std::vector<int32_t> provisional = {}) {
  ProgressEvent event;
  event.step = step;
  event.total_steps = total_steps;
  for (int32_t position : committed) event.committed.push_back({position, 100 + position, 1});
  for (int32_t position : provisional) event.provisional.push_back({position, 900 + step, 0.5F});
  return event;
}

std::vector<int32_t> Positions(const std::vector<TokenEdit>& edits) {
  std::vector<int32_t> positions;
  for (const TokenEdit& edit : edits) positions.push_back(edit.position);
  return positions;
}

class MailboxTest : public ::testing::Test {
 protected:
  FakeClock clock_;
};

TEST_F(MailboxTest, EventsComeInOrderAndEndAfterFinished) {
  Mailbox mailbox({}, &clock_);
  mailbox.PostStarted({.prompt_tokens = 3, .total_steps = 1, .queue_seconds = 0});
  mailbox.PostProgress(Progress(1, 1, {4}));
  mailbox.PostFinished({});
  EXPECT_TRUE(std::holds_alternative<StartedEvent>(*mailbox.Take()));
  EXPECT_TRUE(std::holds_alternative<ProgressEvent>(*mailbox.Take()));
  EXPECT_TRUE(std::holds_alternative<FinishedEvent>(*mailbox.Take()));
  EXPECT_EQ(mailbox.Take(), std::nullopt);
  EXPECT_EQ(mailbox.TryTake(), std::nullopt);
}

TEST_F(MailboxTest, UntakenProgressMergesIntoOneEvent) {
  Mailbox mailbox({}, &clock_);
  mailbox.PostProgress(Progress(1, 9, {5, 9}, {3, 4}));
  mailbox.PostProgress(Progress(2, 9, {3, 7}, {4}));
  const ProgressEvent event = std::get<ProgressEvent>(*mailbox.TryTake());
  EXPECT_EQ(event.step, 2);
  EXPECT_THAT(Positions(event.committed), ElementsAre(3, 5, 7, 9));
  EXPECT_THAT(Positions(event.provisional), ElementsAre(4));
  EXPECT_EQ(event.provisional[0].token, 902);
  EXPECT_EQ(mailbox.TryTake(), std::nullopt);
}

TEST_F(MailboxTest, ProgressIsDueEverySoManyStepsAndAtTheEnd) {
  Mailbox mailbox({.every_steps = 3}, &clock_);
  std::vector<int32_t> seen;
  for (int32_t step = 1; step <= 7; ++step) {
    mailbox.PostProgress(Progress(step, 7, {step}));
    while (auto event = mailbox.TryTake()) seen.push_back(std::get<ProgressEvent>(*event).step);
  }
  EXPECT_THAT(seen, ElementsAre(3, 6, 7));
}

TEST_F(MailboxTest, FinishedFlushesProgressThatWasNotDue) {
  Mailbox mailbox({.every_steps = 5}, &clock_);
  mailbox.PostProgress(Progress(1, 9, {1}));
  mailbox.PostProgress(Progress(2, 9, {2}));
  EXPECT_EQ(mailbox.TryTake(), std::nullopt);
  mailbox.PostFinished({});
  EXPECT_THAT(Positions(std::get<ProgressEvent>(*mailbox.TryTake()).committed), ElementsAre(1, 2));
  EXPECT_TRUE(std::holds_alternative<FinishedEvent>(*mailbox.TryTake()));
}

TEST_F(MailboxTest, FinalOnlyHasNothingButTheResult) {
  Mailbox mailbox({.final_only = true}, &clock_);
  mailbox.PostStarted({});
  mailbox.PostProgress(Progress(1, 1, {1}));
  EXPECT_EQ(mailbox.TryTake(), std::nullopt);
  mailbox.PostFinished({});
  EXPECT_TRUE(std::holds_alternative<FinishedEvent>(*mailbox.TryTake()));
}

// Whatever the reader's pace, what it saw adds up to every edit, once each, in the end.
TEST_F(MailboxTest, ReplayOfEventsGivesEveryCommittedToken) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const int32_t steps = 1 + static_cast<int32_t>(random() % 20);
    std::vector<int32_t> order(40);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    Mailbox mailbox({.every_steps = 1 + static_cast<int32_t>(random() % 4)}, &clock_);

    std::vector<int32_t> replayed(order.size(), 0);
    const auto read_some = [&](uint32_t how_many) {
      while (how_many-- > 0) {
        const auto event = mailbox.TryTake();
        if (!event || !std::holds_alternative<ProgressEvent>(*event)) continue;
        const auto& committed = std::get<ProgressEvent>(*event).committed;
        const auto positions = Positions(committed);
        EXPECT_TRUE(std::is_sorted(positions.begin(), positions.end()));
        for (const TokenEdit& edit : committed) {
          EXPECT_EQ(replayed[static_cast<size_t>(edit.position)], 0) << "committed twice";
          replayed[static_cast<size_t>(edit.position)] = edit.token;
        }
      }
    };
    size_t next = 0;
    for (int32_t step = 1; step <= steps; ++step) {
      const size_t until =
          step == steps ? order.size() : std::min(order.size(), next + random() % 6);
      std::vector<int32_t> positions(order.begin() + static_cast<long>(next),
                                     order.begin() + static_cast<long>(until));
      std::sort(positions.begin(), positions.end());
      mailbox.PostProgress(Progress(step, steps, positions));
      next = until;
      read_some(random() % 3);
    }
    mailbox.PostFinished({});
    read_some(3);
    for (size_t i = 0; i < replayed.size(); ++i) {
      EXPECT_EQ(replayed[i], 100 + static_cast<int32_t>(i));
    }
  }
}

TEST_F(MailboxTest, ReaderStallsOnlyWhileSomethingWaits) {
  Mailbox mailbox({.every_steps = 2}, &clock_);
  clock_.Advance(2 * kLimit);
  EXPECT_FALSE(mailbox.Stalled(kLimit));
  mailbox.PostProgress(Progress(1, 9, {1}));  // not due yet
  clock_.Advance(2 * kLimit);
  EXPECT_FALSE(mailbox.Stalled(kLimit));
  mailbox.PostProgress(Progress(2, 9, {2}));
  EXPECT_FALSE(mailbox.Stalled(kLimit));
  clock_.Advance(kLimit - Duration(1));
  EXPECT_FALSE(mailbox.Stalled(kLimit));
  clock_.Advance(Duration(1));
  EXPECT_TRUE(mailbox.Stalled(kLimit));
}

TEST_F(MailboxTest, LaterPostsDoNotRestartTheStallTimerButTakingDoes) {
  Mailbox mailbox({}, &clock_);
  mailbox.PostStarted({});
  clock_.Advance(kLimit / 2);
  mailbox.PostProgress(Progress(1, 9, {1}));
  clock_.Advance(kLimit / 2);
  EXPECT_TRUE(mailbox.Stalled(kLimit));
  ASSERT_TRUE(mailbox.TryTake());
  EXPECT_FALSE(mailbox.Stalled(kLimit)) << "it took one event, another waits";
  clock_.Advance(kLimit);
  EXPECT_TRUE(mailbox.Stalled(kLimit));
}

TEST_F(MailboxTest, TakeWaitsForThePost) {
  Mailbox mailbox({.final_only = true}, &clock_);
  std::thread poster([&] { mailbox.PostFinished({}); });
  EXPECT_TRUE(std::holds_alternative<FinishedEvent>(*mailbox.Take()));
  poster.join();
}

TEST_F(MailboxTest, WakeIsCalledWheneverSomethingIsDue) {
  Mailbox mailbox({.every_steps = 2}, &clock_);
  mailbox.PostStarted({});
  int wakes = 0;
  mailbox.SetWake([&] { ++wakes; });
  EXPECT_EQ(wakes, 1) << "something waited already";
  ASSERT_TRUE(mailbox.TryTake());
  mailbox.PostProgress(Progress(1, 9, {1}));
  EXPECT_EQ(wakes, 1);
  mailbox.PostProgress(Progress(2, 9, {2}));
  EXPECT_EQ(wakes, 2);
  mailbox.SetWake(nullptr);
  mailbox.PostFinished({});
  EXPECT_EQ(wakes, 2);
}

TEST_F(MailboxTest, ClearingWakeWaitsForACallInProgress) {
  Mailbox mailbox({}, &clock_);
  std::promise<void> inside;
  std::promise<void> cleared;
  std::future<void> is_cleared = cleared.get_future();
  std::future_status seen_inside{};
  mailbox.SetWake([&] {
    inside.set_value();
    // Never ready, however long one waits; 100 ms is time enough for a broken SetWake to return.
    seen_inside = is_cleared.wait_for(std::chrono::milliseconds(100));
  });
  std::thread poster([&] { mailbox.PostStarted({}); });
  inside.get_future().wait();
  mailbox.SetWake(nullptr);
  cleared.set_value();
  poster.join();
  EXPECT_EQ(seen_inside, std::future_status::timeout);
}

TEST_F(MailboxTest, WakeMayClearItself) {
  Mailbox mailbox({}, &clock_);
  mailbox.SetWake([&] { mailbox.SetWake(nullptr); });
  mailbox.PostStarted({});
  mailbox.PostFinished({});
  EXPECT_TRUE(mailbox.TryTake());
}

}  // namespace
}  // namespace sparsed
