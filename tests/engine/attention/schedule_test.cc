// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/attention/cost_model.h"
#include "engine/attention/resolve.h"

namespace sparsed {
namespace {

ModelInfo TwoLayers() {
  ModelInfo model;
  model.layers = 2;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 32;
  return model;
}

AttentionSchedule Resolve(const AttentionPlan& plan, int32_t steps, int32_t prompt = 200,
                          int32_t generation = 56) {
  const Canvas canvas =
      Canvas::FromPrompt(std::vector<int32_t>(static_cast<size_t>(prompt)), generation, 0);
  return ResolveSchedule(plan, canvas, steps, TwoLayers());
}

// One letter per step: Dense, Build (dense), Sparse, Rebuild.
std::string Phases(const AttentionPlan& plan, int32_t steps) {
  const AttentionSchedule schedule = Resolve(plan, steps);
  std::string phases;
  for (int32_t step = 0; step < steps; ++step) {
    phases += "DBSR"[static_cast<int>(schedule.PhaseOf(step))];
  }
  return phases;
}

AttentionPlan Preset(const char* name, double skip, int32_t refresh_every) {
  AttentionPlan plan = *FindAttentionPreset(name);
  plan.skip = skip;
  plan.refresh_every = refresh_every;
  return plan;
}

TEST(ScheduleTest, PooledMassIsBuiltInTheLastDenseStep) {
  EXPECT_EQ(Phases(Preset("sparsed", 0.4, 0), 5), "DBSSS");
  EXPECT_EQ(Phases(Preset("sparsed", 0, 0), 5), "BSSSS");
  EXPECT_EQ(Phases(Preset("sparsed_compat", 0, 0), 5), "DBSSS");
}

TEST(ScheduleTest, PooledMassIsRefreshedInDenseStepsThatALaterStepUses) {
  EXPECT_EQ(Phases(Preset("sparsed", 0.2, 3), 11), "DBSSBSSBSSS");
  EXPECT_EQ(Phases(Preset("sparsed", 0, 2), 4), "BSBS");
  EXPECT_EQ(Phases(Preset("sparsed", 0, 4), 5), "BSSSS");
}

TEST(ScheduleTest, CheapScoresNeedNoDenseStep) {
  EXPECT_EQ(Phases(Preset("nabla", 0, 1), 4), "RRRR");
  EXPECT_EQ(Phases(Preset("nabla", 0.5, 1), 4), "DDRR");
  EXPECT_EQ(Phases(Preset("nabla", 0, 0), 4), "RSSS");
  EXPECT_EQ(Phases(Preset("nabla", 0.5, 0), 4), "DBSS");
  EXPECT_EQ(Phases(Preset("ba_att", 0, 3), 7), "RSSRSSR");
  EXPECT_EQ(Phases(Preset("ba_att", 0.3, 2), 7), "DBSRSRS");
  EXPECT_EQ(Phases(Preset("window", 0, 0), 3), "RSS");
}

TEST(ScheduleTest, NothingIsHeldWhereNoStepIsSparse) {
  for (const AttentionPlan& plan : {Preset("dense", 1, 0), Preset("sparsed", 1, 0),
                                    Preset("nabla", 1, 1), Preset("window", 1, 0)}) {
    EXPECT_EQ(Phases(plan, 4), "DDDD") << plan.preset;
    EXPECT_EQ(Resolve(plan, 4).mask_bytes, 0) << plan.preset;
  }
  EXPECT_EQ(Resolve(Preset("sparsed", 0, 0), 1).mask_bytes, 0);
  EXPECT_GT(Resolve(Preset("nabla", 0, 1), 1).mask_bytes, 0);
}

TEST(ScheduleTest, TokenOrdersArePartOfWhatALaneHolds) {
  AttentionPlan plan = Preset("ba_att", 0, 1);  // 2 blocks of 128: one word per head and block
  EXPECT_EQ(Resolve(plan, 4).mask_bytes, 2 * 4 * (4 * 2 + (4 + 2) * 256));
  plan.reorder = ReorderRule::kNormK;
  EXPECT_EQ(Resolve(plan, 4).mask_bytes, 2 * 4 * (4 * 2 + 2 * 256));
  plan.reorder = ReorderRule::kNone;
  EXPECT_EQ(Resolve(plan, 4).mask_bytes, 2 * 4 * (4 * 2));
}

TEST(ScheduleTest, LeastDensityCountsWhatTheRuleMustKeep) {
  AttentionPlan plan = Preset("sparsed", 0, 0);
  plan.block_tokens = 32;  // 8 blocks, of which 7 are the prompt's
  plan.ratio = 0.5;
  EXPECT_DOUBLE_EQ(Resolve(plan, 4).LeastDensity(), (4 + 1) / 8.0);
  plan.select = SelectRule::kTopK;
  EXPECT_DOUBLE_EQ(Resolve(plan, 4).LeastDensity(), 4 / 8.0);
  plan.select = SelectRule::kMass;
  EXPECT_DOUBLE_EQ(Resolve(plan, 4).LeastDensity(), 1 / 8.0);
  plan.select = SelectRule::kTopRatio;
  plan.relevant_share = 0.25;  // at least the generation's row keeps 4 + 1 blocks
  const AttentionSchedule relevance = Resolve(plan, 4);
  const double open = relevance.blocks - relevance.first_open_block;
  EXPECT_DOUBLE_EQ(relevance.LeastDensity(), (open * 5 + (8 - open)) / 64);
}

// A pair costs twice as much sparse as dense, and every token of a sparse step 100 pairs.
AttentionCosts Costs() {
  AttentionCosts costs;
  costs.dense_pair = 1;
  costs.sparse_pair = {2, 2, 2, 2};
  costs.score_token = 100;
  return costs;
}

TEST(AttentionCostsTest, HighDensityIsDeniedAndLowIsNot) {
  AttentionPlan plan = Preset("sparsed", 0, 0);
  plan.block_tokens = 32;
  const AttentionSchedule schedule = Resolve(plan, 4);
  EXPECT_EQ(Costs().Judge(schedule, 0.49), GuardReason::kNone);
  EXPECT_EQ(Costs().Judge(schedule, 0.51), GuardReason::kHighDensity);
}

TEST(AttentionCostsTest, RebuildingCostsAreSharedByTheStepsBetween) {
  AttentionPlan plan = Preset("nabla", 0, 1);
  plan.block_tokens = 32;
  // 256 tokens: dense 65536, one of 8 blocks 16384, scoring 25600.
  EXPECT_EQ(Costs().Judge(Resolve(plan, 4), 0.125), GuardReason::kNone);
  EXPECT_EQ(Costs().Judge(Resolve(plan, 4), 0.35), GuardReason::kHighDensity);
  plan.refresh_every = 4;
  EXPECT_EQ(Costs().Judge(Resolve(plan, 4), 0.35), GuardReason::kNone);
}

TEST(AttentionCostsTest, ACanvasIsTooShortWhenEvenOneBlockCostsMore) {
  AttentionPlan plan = Preset("nabla", 0, 1);
  plan.block_tokens = 32;
  EXPECT_EQ(Costs().Judge(Resolve(plan, 4, 50, 14), 0.5), GuardReason::kShortCanvas);
}

TEST(AttentionCostsTest, MeasuredCostsArePositiveAndLetLongSparseCanvasesPass) {
  const absl::StatusOr<AttentionCosts> costs = MeasureAttentionCosts(TwoLayers(), at::kCPU);
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_GT(costs->dense_pair, 0);
  for (const double pair : costs->sparse_pair) EXPECT_GT(pair, 0);
  AttentionPlan plan = Preset("sparsed", 0, 0);
  EXPECT_EQ(costs->Judge(Resolve(plan, 4, 8000, 192), 0.05), GuardReason::kNone);
}

}  // namespace
}  // namespace sparsed
