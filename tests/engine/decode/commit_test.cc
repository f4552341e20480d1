// SPDX-License-Identifier: Apache-2.0
#include "engine/decode/commit.h"

#include <limits>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/invalid_field.h"
#include "tests/support/matchers.h"

namespace sparsed {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::IsOk;

constexpr int32_t kMask = 99;

Canvas Open(int32_t prompt, int32_t generation) {
  return Canvas::FromPrompt(std::vector<int32_t>(static_cast<size_t>(prompt), 1), generation,
                            kMask);
}

DecodePolicy Policy(int32_t steps, int32_t block_length) {
  DecodePolicy policy;
  policy.steps = steps;
  policy.block_length = block_length;
  return policy;
}

std::vector<int32_t> Budgets(int32_t steps, int32_t open) {
  std::vector<int32_t> budgets;
  for (int32_t step = 0; step < steps; ++step) {
    budgets.push_back(CommitBudget({0, open, step, steps}, open));
  }
  return budgets;
}

TEST(CommitBudgetTest, EarlyStepsTakeTheRemainder) {
  EXPECT_THAT(Budgets(6, 16), ElementsAre(3, 3, 3, 3, 2, 2));
  EXPECT_THAT(Budgets(4, 2), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(Budgets(3, 0), ElementsAre(0, 0, 0));
  EXPECT_THAT(Budgets(1, 24), ElementsAre(24));
}

TEST(PlaceOfTest, StepsAreSharedEvenlyAmongBlocks) {
  const Canvas canvas = Open(5, 12);
  const DecodePolicy policy = Policy(6, 4);
  const StepPlace place = PlaceOf(policy, canvas, 3);
  EXPECT_EQ(place.block_begin, 9);
  EXPECT_EQ(place.block_end, 13);
  EXPECT_EQ(place.step_in_block, 1);
  EXPECT_EQ(place.steps_in_block, 2);
}

TEST(CandidatePositionsTest, OnlyOpenOnesBeforeTheBlocksEnd) {
  Canvas canvas = Open(3, 8);
  canvas.open[1] = 1;  // a hole in the prompt competes too
  canvas.open[4] = 0;
  EXPECT_THAT(CandidatePositions(canvas, PlaceOf(Policy(4, 4), canvas, 0)),
              ElementsAre(1, 3, 5, 6));
}

TEST(ChooseCommitsTest, HighestConfidenceFirstTiesToTheLowerPosition) {
  const std::vector<TokenEdit> predictions = {
      {10, 1, 0.5f}, {11, 1, 0.9f}, {12, 1, 0.5f}, {13, 1, 0.9f}, {14, 1, 0.1f}};
  EXPECT_THAT(ChooseCommits(Policy(1, 1), 0, 3, predictions), ElementsAre(0, 1, 3));
  EXPECT_THAT(ChooseCommits(Policy(1, 1), 0, 0, predictions), IsEmpty());
  EXPECT_EQ(ChooseCommits(Policy(1, 1), 0, 9, predictions).size(), 5u);
}

TEST(ChooseCommitsTest, RandomOrderDependsOnSeedAndStepOnly) {
  DecodePolicy policy = Policy(1, 1);
  policy.remasking = Remasking::kRandom;
  std::vector<TokenEdit> predictions;
  for (int32_t p = 0; p < 50; ++p) predictions.push_back({p, 1, static_cast<float>(p)});
  const auto chosen = [&](uint64_t seed, int32_t step) {
    policy.seed = seed;
    return ChooseCommits(policy, step, 5, predictions);
  };
  EXPECT_EQ(chosen(1, 0), chosen(1, 0));
  EXPECT_NE(chosen(1, 0), chosen(2, 0));
  EXPECT_NE(chosen(1, 0), chosen(1, 1));
  EXPECT_NE(chosen(1, 0), (std::vector<size_t>{45, 46, 47, 48, 49}));
}

TEST(CommitEditsTest, PredictedMaskIdLeavesThePositionOpen) {
  Canvas canvas = Open(1, 3);
  CommitEdits({{1, 7, 1.0f}, {2, kMask, 1.0f}}, kMask, &canvas);
  EXPECT_THAT(canvas.tokens, ElementsAre(1, 7, kMask, kMask));
  EXPECT_THAT(canvas.open, ElementsAre(0, 0, 1, 1));
}

TEST(CloseAfterEndTest, ClosesWhatFollowsTheFirstEndToken) {
  DecodePolicy policy = Policy(1, 1);
  policy.end_tokens = {5, 6};
  Canvas canvas = Open(1, 5);
  CommitEdits({{4, 5, 1.0f}, {3, 6, 1.0f}}, kMask, &canvas);
  const std::vector<TokenEdit> closed = CloseAfterEnd(policy, &canvas);
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_EQ(closed[0].position, 5);
  EXPECT_EQ(closed[0].token, 6);  // the first end token's kind
  EXPECT_THAT(canvas.open, ElementsAre(0, 1, 1, 0, 0, 0));
  EXPECT_TRUE(HasEndToken(policy, canvas));
}

TEST(CloseAfterEndTest, EndTokensInThePromptDoNotCount) {
  DecodePolicy policy = Policy(1, 1);
  policy.end_tokens = {1};
  Canvas canvas = Open(4, 3);
  EXPECT_THAT(CloseAfterEnd(policy, &canvas), IsEmpty());
  EXPECT_FALSE(HasEndToken(policy, canvas));
}

TEST(ValidatePolicyTest, NamesTheFieldAtFault) {
  const Canvas canvas = Open(3, 12);
  const auto path = [&](const DecodePolicy& policy) {
    return InvalidFieldPath(ValidatePolicy(policy, canvas)).value_or("accepted");
  };
  EXPECT_THAT(ValidatePolicy(Policy(6, 4), canvas), IsOk());
  EXPECT_EQ(path(Policy(6, 5)), "decoding.block_length");
  EXPECT_EQ(path(Policy(6, 0)), "decoding.block_length");
  EXPECT_EQ(path(Policy(7, 4)), "decoding.steps");
  EXPECT_EQ(path(Policy(0, 4)), "decoding.steps");
  EXPECT_EQ(InvalidFieldPath(ValidatePolicy(Policy(1, 1), Open(3, 0))), "decoding.gen_length");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double bad : {-0.1, 1000.0, nan, std::numeric_limits<double>::infinity()}) {
    DecodePolicy policy = Policy(6, 4);
    policy.temperature = bad;
    EXPECT_EQ(path(policy), "decoding.temperature");
    policy = Policy(6, 4);
    policy.cfg_scale = bad;
    EXPECT_EQ(path(policy), "decoding.cfg_scale");
  }
}

}  // namespace
}  // namespace sparsed
