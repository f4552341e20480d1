// SPDX-License-Identifier: Apache-2.0
// The step loop on its own thread: start, drain, stop, and races with callers.
#include <atomic>
#include <future>
#include <thread>

#include <absl/strings/match.h>

#include "tests/server/step_loop_fixture.h"

namespace sparsed {
namespace {

using ::sparsed::testing::FakeEngine;
using ::sparsed::testing::IsOk;
using ::sparsed::testing::JobShape;
using ::sparsed::testing::MakeJob;
using ::sparsed::testing::StatusIs;
using ::sparsed::testing::StepLoopTest;
using ::testing::_;

constexpr Duration kLongLimit = std::chrono::minutes(5);

// Blocks the engine inside a step, from the first one on, until opened.
class Gate {
 public:
  void Pass() {
    if (!closed_.exchange(false)) return;
    entered_.set_value();
    opened_.get_future().wait();
  }
  void AwaitEntered() { entered_.get_future().wait(); }
  void Open() { opened_.set_value(); }

 private:
  std::atomic<bool> closed_ = true;
  std::promise<void> entered_;
  std::promise<void> opened_;
};

using StepLoopThreadTest = StepLoopTest;

TEST_F(StepLoopThreadTest, IdleLoopWakesForAJob) {
  loop_.Start();
  for (int i = 0; i < 20; ++i) {
    Submit("a", {.mailbox = {.final_only = true}});
    EXPECT_THAT(std::get<FinishedEvent>(*mailboxes_["a"]->Take()).status, IsOk());
  }
  loop_.Stop();
  ExpectNothingHeld();
}

TEST_F(StepLoopThreadTest, DrainFinishesWhatIsQueuedAndRunning) {
  Gate gate;
  engine_.on_step = [&](absl::Span<const RequestId>) { gate.Pass(); };
  for (int i = 0; i < 10; ++i) Submit("job" + std::to_string(i));
  loop_.Start();
  gate.AwaitEntered();
  auto drained = std::async(std::launch::async, [&] { return loop_.Drain(kLongLimit); });
  gate.Open();
  EXPECT_TRUE(drained.get());
  for (int i = 0; i < 10; ++i) EXPECT_THAT(Finished("job" + std::to_string(i)).status, IsOk());
  EXPECT_THAT(admission_.Reserve(), StatusIs(absl::StatusCode::kUnavailable, _));
  ExpectNothingHeld();
}

TEST_F(StepLoopThreadTest, DrainOfAnIdleLoopReturnsAtOnce) {
  loop_.Start();
  EXPECT_TRUE(loop_.Drain(kLongLimit));
}

TEST_F(StepLoopThreadTest, DrainWaitsForASlotThatIsStillHeld) {
  loop_.Start();
  auto slot = admission_.Reserve();
  ASSERT_THAT(slot, IsOk());
  auto drained = std::async(std::launch::async, [&] { return loop_.Drain(kLongLimit); });
  // Refused means the drain has begun.
  while (admission_.Reserve().ok()) std::this_thread::yield();
  Job job = MakeJob("late", {}, &clock_);
  auto mailbox = job.mailbox;
  EXPECT_THAT(admission_.Submit(*std::move(slot), std::move(job)), IsOk());
  EXPECT_TRUE(drained.get());
  mailboxes_["late"] = mailbox;
  EXPECT_THAT(Finished("late").status, IsOk());
}

TEST_F(StepLoopThreadTest, DrainCutsShortAtItsLimit) {
  Gate gate;
  engine_.on_step = [&](absl::Span<const RequestId>) { gate.Pass(); };
  for (int i = 0; i < 6; ++i) Submit("job" + std::to_string(i), {.steps = 8, .sparse = true});
  loop_.Start();
  gate.AwaitEntered();
  auto drained = std::async(std::launch::async, [&] { return loop_.Drain(kLongLimit); });
  while (admission_.Reserve().ok()) std::this_thread::yield();
  clock_.Advance(kLongLimit);
  gate.Open();
  EXPECT_FALSE(drained.get());
  for (int i = 0; i < 6; ++i) {
    EXPECT_THAT(Finished("job" + std::to_string(i)).status,
                StatusIs(absl::StatusCode::kUnavailable, _));
  }
  EXPECT_EQ(Scrape().Value("sparsed_requests_total", "code", "UNAVAILABLE"), 6);
  ExpectNothingHeld();
}

TEST_F(StepLoopThreadTest, StopInterruptsADrain) {
  Gate gate;
  engine_.on_step = [&](absl::Span<const RequestId>) { gate.Pass(); };
  Submit("a", {.steps = 8});
  loop_.Start();
  gate.AwaitEntered();
  auto drained = std::async(std::launch::async, [&] { return loop_.Drain(kLongLimit); });
  auto stopped = std::async(std::launch::async, [&] { loop_.Stop(); });
  // A draining server refuses too; "has stopped" says that the loop will see the stop.
  while (!absl::StrContains(admission_.Reserve().status().message(), "has stopped")) {
    std::this_thread::yield();
  }
  gate.Open();
  stopped.get();
  EXPECT_FALSE(drained.get());
  EXPECT_THAT(Finished("a").status, StatusIs(absl::StatusCode::kUnavailable, _));
  ExpectNothingHeld();
}

TEST_F(StepLoopThreadTest, StopWithoutStartEndsTheQueue) {
  Submit("a");
  loop_.Stop();
  loop_.Stop();
  EXPECT_THAT(Finished("a").status, StatusIs(absl::StatusCode::kUnavailable, _));
  ExpectNothingHeld();
}

// Counts a request's last events and says when all requests have had theirs.
struct Tally {
  std::atomic<int> finals = 0;
  std::atomic<int> ok = 0;
  std::atomic<int> cancelled = 0;
  std::atomic<int> expired = 0;
  std::atomic<int> other = 0;

  void Note(const absl::Status& status) {
    ++finals;
    ++(status.ok()                                            ? ok
       : status.code() == absl::StatusCode::kCancelled        ? cancelled
       : status.code() == absl::StatusCode::kDeadlineExceeded ? expired
                                                              : other);
  }
};

class StepLoopRaceTest : public StepLoopTest {
 protected:
  // One caller: submits, sometimes with a deadline, sometimes cancels, reads to the end.
  void RunCaller(int caller, int requests) {
    for (int i = 0; i < requests; ++i) {
      const std::string name = absl::StrCat(caller, "-", i);
      auto slot = admission_.Reserve();
      if (!slot.ok()) {
        ++refused_;
        continue;
      }
      Job job = MakeJob(name, {.steps = 3 + i % 3, .sparse = i % 2 == 0}, &clock_);
      if (i % 3 == 0) job.deadline = clock_.Now() + std::chrono::milliseconds(i % 7);
      const std::shared_ptr<Mailbox> mailbox = job.mailbox;
      const absl::StatusOr<JobId> id = admission_.Submit(*std::move(slot), std::move(job));
      ASSERT_THAT(id, IsOk());
      ++submitted_;
      std::thread canceller;
      if (i % 4 == 1) canceller = std::thread([this, name, &id] { CancelTwice(name, *id); });
      ReadToTheEnd(mailbox.get());
      if (canceller.joinable()) canceller.join();
    }
  }

  void CancelTwice(const std::string& name, JobId id) {
    const bool promised = admission_.Cancel(name);
    const bool again = admission_.CancelJob(id);
    EXPECT_TRUE(promised || !again);
    if (promised) ++promised_;
  }

  void ReadToTheEnd(Mailbox* mailbox) {
    int finals = 0;
    while (std::optional<Event> event = mailbox->Take()) {
      const auto* finished = std::get_if<FinishedEvent>(&*event);
      if (finished == nullptr) continue;
      ++finals;
      tally_.Note(finished->status);
      EXPECT_EQ(finished->canvas.length(), 11);
    }
    EXPECT_EQ(finals, 1);
  }

  Tally tally_;
  std::atomic<int> submitted_ = 0;
  std::atomic<int> refused_ = 0;
  std::atomic<int> promised_ = 0;
};

TEST_F(StepLoopRaceTest, CancelFinishAndDeadlineGiveEachRequestOneEnd) {
  engine_.on_step = [&](absl::Span<const RequestId>) {
    clock_.Advance(std::chrono::milliseconds(1));
  };
  loop_.Start();
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 8; ++caller) {
    callers.emplace_back([this, caller] { RunCaller(caller, 60); });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_TRUE(loop_.Drain(kLongLimit));

  EXPECT_EQ(refused_, 0);
  EXPECT_EQ(tally_.finals, submitted_);
  EXPECT_EQ(tally_.cancelled, promised_) << "a cancel that was promised, and no other";
  EXPECT_EQ(tally_.other, 0);
  EXPECT_GT(tally_.ok, 0);
  ExpectNothingHeld();
  const auto metrics = Scrape();
  EXPECT_EQ(metrics.Value("sparsed_requests_total", "code", "OK"), tally_.ok);
  EXPECT_EQ(metrics.Value("sparsed_requests_total", "code", "CANCELLED"), tally_.cancelled);
  EXPECT_EQ(metrics.Value("sparsed_requests_total", "code", "DEADLINE_EXCEEDED"), tally_.expired);
}

TEST_F(StepLoopRaceTest, StopInTheMiddleEndsEverySubmittedRequest) {
  loop_.Start();
  std::vector<std::thread> callers;
  std::atomic<int> finals = 0;
  for (int caller = 0; caller < 6; ++caller) {
    callers.emplace_back([this, caller, &finals] {
      for (int i = 0;; ++i) {
        auto slot = admission_.Reserve();
        if (!slot.ok()) return;
        Job job = MakeJob(absl::StrCat(caller, "-", i), {.sparse = true}, &clock_);
        const std::shared_ptr<Mailbox> mailbox = job.mailbox;
        if (!admission_.Submit(*std::move(slot), std::move(job)).ok()) return;
        ++submitted_;
        ReadToTheEnd(mailbox.get());
        ++finals;
      }
    });
  }
  while (submitted_ < 50) std::this_thread::yield();
  loop_.Stop();
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(finals, submitted_);
  ExpectNothingHeld();
}

}  // namespace
}  // namespace sparsed
