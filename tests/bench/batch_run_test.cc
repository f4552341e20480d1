// SPDX-License-Identifier: Apache-2.0
#include "bench/batch_run.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_engine.h"
#include "tests/support/matchers.h"

namespace sparsed {
namespace {

using testing::FakeEngine;
using testing::IsOk;
using testing::StatusIs;
using ::testing::UnorderedElementsAre;

class BatchRunTest : public ::testing::Test {
 protected:
  // Requests of 4 tokens after a prompt of `index` tokens, in 1 + index steps.
  Batch BatchOf(size_t count) {
    Batch batch;
    batch.count = count;
    batch.max_rows = 2;
    batch.request = [](size_t index) {
      Request request;
      request.canvas =
          Canvas::FromPrompt(std::vector<int32_t>(index, 3), 4, FakeEngine::kMaskToken);
      request.policy.steps = static_cast<int32_t>(index) + 1;
      return request;
    };
    batch.done = [this](size_t index, const RowTally& tally) {
      done_.push_back(index);
      EXPECT_EQ(tally.Answer({})[0], FakeEngine::TokenAt(static_cast<int32_t>(index)));
      return absl::OkStatus();
    };
    batch.stop = [] { return false; };
    return batch;
  }

  FakeEngine engine_;
  std::vector<size_t> done_;
};

TEST_F(BatchRunTest, EveryRequestIsDoneOnceAndStepsAreShared) {
  EXPECT_THAT(RunBatch(&engine_, BatchOf(4)), IsOk());
  EXPECT_THAT(done_, UnorderedElementsAre(0, 1, 2, 3));
  // Steps of 1, 2, 3 and 4 in two rows: {0, 1}, {1, 2}, {2, 3}, {2, 3}, {3}, {3}.
  EXPECT_EQ(engine_.batches().size(), 6U);
  EXPECT_EQ(engine_.load().rows, 0);
}

TEST_F(BatchRunTest, AFailingRowEndsTheRunAndFreesTheOthers) {
  engine_.row_status = [](const Request& request, int32_t) {
    return request.canvas.prompt_length == 1 ? absl::InternalError("NaN") : absl::OkStatus();
  };
  EXPECT_THAT(RunBatch(&engine_, BatchOf(3)), StatusIs(absl::StatusCode::kInternal, "NaN"));
  EXPECT_EQ(engine_.load().rows, 0);
}

TEST_F(BatchRunTest, StoppingFreesWhatRuns) {
  Batch batch = BatchOf(4);
  batch.stop = [this] { return engine_.batches().size() == 2; };
  EXPECT_THAT(RunBatch(&engine_, batch), StatusIs(absl::StatusCode::kCancelled, "interrupted"));
  EXPECT_THAT(done_, UnorderedElementsAre(0, 1));
  EXPECT_EQ(engine_.load().rows, 0);
}

TEST_F(BatchRunTest, ARefusedRequestIsReported) {
  engine_.admit_status = [](const Request&) { return absl::InvalidArgumentError("too long"); };
  EXPECT_THAT(RunBatch(&engine_, BatchOf(1)),
              StatusIs(absl::StatusCode::kInvalidArgument, "too long"));
}

}  // namespace
}  // namespace sparsed
