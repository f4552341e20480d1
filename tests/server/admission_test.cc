// SPDX-License-Identifier: Apache-2.0
#include "server/admission.h"

#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/retry_after.h"
#include "tests/server/job_factory.h"
#include "tests/support/fake_clock.h"
#include "tests/support/matchers.h"

namespace sparsed {
namespace {

using ::sparsed::testing::FakeClock;
using ::sparsed::testing::IsOk;
using ::sparsed::testing::MakeJob;
using ::sparsed::testing::StatusIs;
using ::testing::_;
using ::testing::HasSubstr;

class AdmissionTest : public ::testing::Test {
 protected:
  absl::StatusOr<JobId> Submit(const std::string& request_id,
                               std::optional<Duration> timeout = std::nullopt) {
    absl::StatusOr<Admission::Slot> slot = admission_.Reserve();
    if (!slot.ok()) return slot.status();
    Job job = MakeJob(request_id, {}, &clock_);
    if (timeout) job.deadline = clock_.Now() + *timeout;
    return admission_.Submit(*std::move(slot), std::move(job));
  }

  FakeClock clock_;
  Metrics metrics_;
  Admission admission_{{.max_queued = 3}, &clock_, &metrics_};
};

TEST_F(AdmissionTest, FullQueueRefusesBeforeAnyWorkAndSaysWhenToComeBack) {
  ASSERT_THAT(Submit("a"), IsOk());
  ASSERT_OK_AND_ASSIGN(Admission::Slot second, admission_.Reserve());
  ASSERT_OK_AND_ASSIGN(Admission::Slot third, admission_.Reserve());
  const absl::StatusOr<Admission::Slot> fourth = admission_.Reserve();
  EXPECT_THAT(fourth, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("3 of 3")));
  EXPECT_GE(RetryAfterSeconds(fourth.status()).value_or(0), 1);
  EXPECT_EQ(admission_.load().queued, 3);
  EXPECT_EQ(metrics_.requests_waiting.at("").Value(), 3);
}

TEST_F(AdmissionTest, SlotGivesItsPlaceBack) {
  for (int i = 0; i < 10; ++i) ASSERT_THAT(admission_.Reserve(), IsOk());
  EXPECT_EQ(admission_.load().queued, 0);
}

TEST_F(AdmissionTest, RetryTimeFollowsTheMeanRunTime) {
  std::vector<Admission::Slot> slots;
  for (int i = 0; i < 3; ++i) slots.push_back(*admission_.Reserve());
  const double before = *RetryAfterSeconds(admission_.Reserve().status());
  for (int i = 0; i < 30; ++i) admission_.NoteRunSeconds(20);
  const double after = *RetryAfterSeconds(admission_.Reserve().status());
  EXPECT_GT(after, before);
  EXPECT_NEAR(after, 20, 1);
}

TEST_F(AdmissionTest, NoMoreSlotsThanPlacesUnderContention) {
  Admission admission({.max_queued = 5}, &clock_, &metrics_);
  std::atomic<int> taken = 0;
  std::vector<std::vector<Admission::Slot>> kept(8);
  std::vector<std::thread> threads;
  for (auto& mine : kept) {
    threads.emplace_back([&admission, &taken, &mine] {
      for (int i = 0; i < 20; ++i) {
        if (auto slot = admission.Reserve(); slot.ok()) {
          mine.push_back(*std::move(slot));
          ++taken;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, 5);
}

TEST_F(AdmissionTest, JobsLeaveInOrderOfSubmission) {
  ASSERT_OK_AND_ASSIGN(Admission::Slot early, admission_.Reserve());
  ASSERT_THAT(Submit("first"), IsOk());
  ASSERT_THAT(admission_.Submit(std::move(early), MakeJob("second", {}, &clock_)), IsOk());
  EXPECT_EQ(admission_.Head()->job.request_id, "first");
  EXPECT_EQ(admission_.Pop().job.request_id, "first");
  EXPECT_EQ(admission_.Pop().job.request_id, "second");
  EXPECT_EQ(admission_.Head(), nullptr);
}

TEST_F(AdmissionTest, NameIsTakenWhileQueuedAndWhileRunning) {
  ASSERT_OK_AND_ASSIGN(const JobId id, Submit("same"));
  EXPECT_THAT(Submit("same"), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("same")));
  admission_.Pop();
  EXPECT_THAT(Submit("same"), StatusIs(absl::StatusCode::kAlreadyExists, _));
  EXPECT_EQ(admission_.load().queued, 0) << "a refused job gives its place back";
  admission_.Finish(id);
  EXPECT_THAT(Submit("same"), IsOk());
}

TEST_F(AdmissionTest, CancelIsTruthfulAndIdempotent) {
  ASSERT_OK_AND_ASSIGN(const JobId id, Submit("a"));
  EXPECT_FALSE(admission_.Cancel("b"));
  EXPECT_TRUE(admission_.Cancel("a"));
  EXPECT_TRUE(admission_.Cancel("a"));
  EXPECT_TRUE(admission_.CancelJob(id));
  EXPECT_TRUE(admission_.Finish(id)) << "the promise must reach the step loop";
  EXPECT_FALSE(admission_.Cancel("a"));
  EXPECT_FALSE(admission_.CancelJob(id));
}

TEST_F(AdmissionTest, CancelByJobDoesNotHitALaterJobOfTheSameName) {
  ASSERT_OK_AND_ASSIGN(const JobId old_id, Submit("a"));
  admission_.Pop();
  admission_.Finish(old_id);
  ASSERT_OK_AND_ASSIGN(const JobId new_id, Submit("a"));
  EXPECT_FALSE(admission_.CancelJob(old_id));
  EXPECT_FALSE(admission_.Finish(new_id));
}

TEST_F(AdmissionTest, CancelledRunningJobIsReportedOnce) {
  ASSERT_OK_AND_ASSIGN(const JobId id, Submit("a"));
  admission_.Pop();
  admission_.Cancel("a");
  admission_.Cancel("a");
  EXPECT_THAT(admission_.TakeCancelled(), ::testing::ElementsAre(id));
  EXPECT_THAT(admission_.TakeCancelled(), ::testing::IsEmpty());
}

TEST_F(AdmissionTest, JobCancelledJustBeforeItRunsIsReportedToo) {
  ASSERT_OK_AND_ASSIGN(const JobId id, Submit("a"));
  admission_.Cancel("a");
  admission_.Pop();
  EXPECT_THAT(admission_.TakeCancelled(), ::testing::ElementsAre(id));
}

TEST_F(AdmissionTest, QueuedJobsEndByCancelAndDeadlineOnly) {
  ASSERT_THAT(Submit("late", std::chrono::seconds(1)), IsOk());
  ASSERT_THAT(Submit("stays", std::chrono::seconds(9)), IsOk());
  ASSERT_THAT(Submit("cancelled"), IsOk());
  admission_.Cancel("cancelled");
  clock_.Advance(std::chrono::seconds(1));
  const std::vector<Admission::Ended> ended = admission_.TakeEnded();
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended[0].queued.job.request_id, "late");
  EXPECT_THAT(ended[0].status, StatusIs(absl::StatusCode::kDeadlineExceeded, _));
  EXPECT_EQ(ended[1].queued.job.request_id, "cancelled");
  EXPECT_THAT(ended[1].status, StatusIs(absl::StatusCode::kCancelled, _));
  EXPECT_EQ(admission_.Head()->job.request_id, "stays");
}

TEST_F(AdmissionTest, DrainRefusesNewSlotsAndHonoursOldOnes) {
  ASSERT_OK_AND_ASSIGN(Admission::Slot slot, admission_.Reserve());
  admission_.Drain();
  EXPECT_TRUE(admission_.load().draining);
  const absl::Status refused = admission_.Reserve().status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("shutting down")));
  EXPECT_FALSE(RetryAfterSeconds(refused));
  EXPECT_FALSE(admission_.idle());
  EXPECT_THAT(admission_.Submit(std::move(slot), MakeJob("a", {}, &clock_)), IsOk());
}

TEST_F(AdmissionTest, SlotGivenBackWakesADrain) {
  {
    ASSERT_OK_AND_ASSIGN(Admission::Slot slot, admission_.Reserve());
    admission_.Drain();
    admission_.WaitForWork(std::nullopt);
    EXPECT_FALSE(admission_.idle());
  }
  admission_.WaitForWork(std::nullopt);
  EXPECT_TRUE(admission_.idle());
}

TEST_F(AdmissionTest, StopRefusesEverything) {
  ASSERT_OK_AND_ASSIGN(Admission::Slot slot, admission_.Reserve());
  admission_.Stop();
  EXPECT_THAT(admission_.Reserve(), StatusIs(absl::StatusCode::kUnavailable, _));
  EXPECT_THAT(admission_.Submit(std::move(slot), MakeJob("a", {}, &clock_)),
              StatusIs(absl::StatusCode::kUnavailable, _));
  EXPECT_TRUE(admission_.idle());
}

TEST_F(AdmissionTest, WaitForWorkReturnsForWorkThatCameBefore) {
  ASSERT_THAT(Submit("a"), IsOk());
  admission_.WaitForWork(std::nullopt);
  std::thread canceller([&] { admission_.Cancel("a"); });
  admission_.WaitForWork(std::nullopt);
  canceller.join();
  admission_.WaitForWork(clock_.Now());  // nothing came, but the time has
}

}  // namespace
}  // namespace sparsed
