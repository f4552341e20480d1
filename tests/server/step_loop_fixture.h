// SPDX-License-Identifier: Apache-2.0
// StepLoopTest: a step loop over a FakeEngine, driven round by round with a FakeClock.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/admission.h"
#include "server/step_loop.h"
#include "tests/server/job_factory.h"
#include "tests/support/exposition.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_engine.h"
#include "tests/support/matchers.h"

namespace sparsed::testing {

class StepLoopTest : public ::testing::Test {
 protected:
  explicit StepLoopTest(const FakeEngineOptions& options = {}) : engine_(options) {}

  // Queues a job and keeps its mailbox.
  JobId Submit(const std::string& request_id, const JobShape& shape = {},
               std::optional<Duration> timeout = std::nullopt) {
    auto slot = admission_.Reserve();
    if (!slot.ok()) {
      ADD_FAILURE() << slot.status();
      return 0;
    }
    Job job = MakeJob(request_id, shape, &clock_);
    if (timeout) job.deadline = clock_.Now() + *timeout;
    mailboxes_[request_id] = job.mailbox;
    auto id = admission_.Submit(*std::move(slot), std::move(job));
    EXPECT_THAT(id, IsOk());
    return id.value_or(0);
  }

  // The request's last event; a failed test and an empty event if it is not over.
  FinishedEvent Finished(const std::string& request_id) {
    std::vector<Event> events = TakeAll(mailboxes_.at(request_id).get());
    if (events.empty() || !std::holds_alternative<FinishedEvent>(events.back())) {
      ADD_FAILURE() << request_id << " is not over";
      return {};
    }
    return std::get<FinishedEvent>(std::move(events.back()));
  }

  void RunUntilIdle() {
    while (loop_.RunRound()) {
    }
  }

  Exposition Scrape() {
    auto exposition = Exposition::Parse(metrics_.Expose());
    EXPECT_THAT(exposition, IsOk());
    return exposition.ok() ? *exposition : Exposition();
  }

  void ExpectNothingHeld() {
    EXPECT_EQ(engine_.load().rows, 0);
    EXPECT_EQ(engine_.load().mask_bytes_used, 0);
    EXPECT_TRUE(admission_.idle());
    EXPECT_EQ(engine_.foreign_calls(), 0);
    const Exposition metrics = Scrape();
    EXPECT_EQ(metrics.Value("sparsed_requests_running"), 0);
    EXPECT_EQ(metrics.Value("sparsed_requests_waiting"), 0);
    EXPECT_EQ(metrics.Value("sparsed_mask_bytes_used"), 0);
    EXPECT_EQ(metrics.Value("sparsed_mask_builds_total"),
              metrics.Value("sparsed_mask_frees_total"));
  }

  static constexpr Duration kStallLimit = std::chrono::seconds(30);
  static constexpr int64_t kMaxBatchTokens = 1000;

  FakeClock clock_;
  FakeEngine engine_;
  Metrics metrics_;
  Admission admission_{{.max_queued = 64}, &clock_, &metrics_};
  StepLoop loop_{{.max_batch_tokens = kMaxBatchTokens, .write_stall_limit = kStallLimit},
                 &engine_,
                 &admission_,
                 &metrics_,
                 &clock_};
  std::map<std::string, std::shared_ptr<Mailbox>> mailboxes_;
};

}  // namespace sparsed::testing
