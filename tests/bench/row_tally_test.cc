// SPDX-License-Identifier: Apache-2.0
#include "bench/row_tally.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sparsed {
namespace {

using ::testing::ElementsAre;

constexpr int32_t kMask = 9;

StepResult Step(StepPhase phase, double density, double seconds) {
  StepResult result;
  result.phase = phase;
  result.density = density;
  result.step_seconds = seconds;
  result.batch_rows = 1;
  result.batch_tokens = 4;
  return result;
}

RowTally OfThreeGeneratedTokens() { return RowTally(Canvas::FromPrompt({5}, 3, kMask)); }

TEST(RowTallyTest, AnswerEndsBeforeTheFirstEndToken) {
  RowTally tally = OfThreeGeneratedTokens();
  StepResult step = Step(StepPhase::kDense, 1, 1);
  step.committed = {{2, 1, 1}, {3, 7, 1}};
  tally.Add(step);
  EXPECT_FALSE(tally.finished());
  step.committed = {{1, 4, 1}};
  step.finished = true;
  tally.Add(step);
  EXPECT_TRUE(tally.finished());
  EXPECT_THAT(tally.Answer({1, 6}), ElementsAre(4));
  EXPECT_THAT(tally.Answer({6}), ElementsAre(4, 1, 7));
}

TEST(RowTallyTest, DensityIsOfSparseStepsAndMeanDensityOfAll) {
  RowTally tally = OfThreeGeneratedTokens();
  tally.Add(Step(StepPhase::kDenseAndBuild, 1, 4));
  StepResult sparse = Step(StepPhase::kSparse, 0.5, 2);
  sparse.retained_mass = 0.75;
  tally.Add(sparse);
  sparse.phase = StepPhase::kRebuild;
  sparse.density = 0.25;
  sparse.retained_mass = 0.5;
  sparse.step_seconds = 3;
  tally.Add(sparse);
  const nlohmann::json measures = tally.Measures(1, false);
  EXPECT_DOUBLE_EQ(measures["density"], 0.375);
  EXPECT_NEAR(measures["mean_density"], 1.75 / 3, 1e-6);
  EXPECT_DOUBLE_EQ(measures["retained_mass"], 0.625);
  EXPECT_DOUBLE_EQ(measures["seconds"], 9);
  EXPECT_DOUBLE_EQ(measures["dense_step_seconds"], 4);
  EXPECT_DOUBLE_EQ(measures["sparse_step_seconds"], 3);
  EXPECT_EQ(measures["steps_run"], 3);
}

TEST(RowTallyTest, SparseShareCountsTokensThatSparseStepsCommitted) {
  RowTally tally = OfThreeGeneratedTokens();
  StepResult step = Step(StepPhase::kDenseAndBuild, 1, 1);
  step.committed = {{2, 4, 1}};
  tally.Add(step);
  step.phase = StepPhase::kSparse;
  step.committed = {{1, 4, 1}, {3, 4, 1}};
  tally.Add(step);
  EXPECT_DOUBLE_EQ(tally.SparseShare(2), 0.5);
  EXPECT_DOUBLE_EQ(tally.SparseShare(1), 1);
  EXPECT_DOUBLE_EQ(tally.SparseShare(0), 0);
}

TEST(RowTallyTest, ADenseRowHasDensityOneAndNoLayers) {
  RowTally tally = OfThreeGeneratedTokens();
  tally.Add(Step(StepPhase::kDense, 1, 1));
  const nlohmann::json measures = tally.Measures(2, true);
  EXPECT_DOUBLE_EQ(measures["density"], 1);
  EXPECT_DOUBLE_EQ(measures["retained_mass"], 1);
  EXPECT_DOUBLE_EQ(measures["sparse_step_seconds"], 0);
  EXPECT_FALSE(measures.contains("layer_density"));
}

TEST(RowTallyTest, SharedStepsAreSplitByCanvasTokens) {
  RowTally tally = OfThreeGeneratedTokens();
  StepResult step = Step(StepPhase::kDense, 1, 2);
  step.batch_rows = 2;
  step.batch_tokens = 16;
  tally.Add(step);
  const nlohmann::json measures = tally.Measures(1, false);
  EXPECT_DOUBLE_EQ(measures["seconds"], 0.5);
  EXPECT_DOUBLE_EQ(measures["batch_rows"], 2);
}

TEST(RowTallyTest, LayersAreMeansOverHeadsAndMasks) {
  RowTally tally = OfThreeGeneratedTokens();
  StepResult build = Step(StepPhase::kRebuild, 0.5, 1);
  build.heads = {{0.1, 0.2}, {0.3, 0.4}, {0.5, 0.6}, {0.7, 0.8}};
  tally.Add(build);
  build.heads = {{0.3, 0.4}, {0.5, 0.6}, {0.7, 0.8}, {0.9, 1.0}};
  tally.Add(build);
  const nlohmann::json layers = tally.Measures(2, false);
  EXPECT_THAT(layers["layer_density"].get<std::vector<double>>(), ElementsAre(0.3, 0.7));
  EXPECT_THAT(layers["layer_retained_mass"].get<std::vector<double>>(), ElementsAre(0.4, 0.8));
  EXPECT_FALSE(layers.contains("head_density"));
  const nlohmann::json heads = tally.Measures(2, true);
  EXPECT_THAT(heads["head_retained_mass"].get<std::vector<double>>(),
              ElementsAre(0.3, 0.5, 0.7, 0.9));
}

}  // namespace
}  // namespace sparsed
