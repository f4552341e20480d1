// SPDX-License-Identifier: Apache-2.0
// Which plans are accepted for a canvas of 1024 tokens, and which field a refusal names.
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/attention/plan.h"
#include "engine/base/invalid_field.h"
#include "tests/support/matchers.h"

namespace sparsed {
namespace {

using testing::IsOk;

constexpr int32_t kLength = 1024;

std::string RefusedField(const AttentionPlan& plan) {
  return InvalidFieldPath(ValidateAttentionPlan(plan, kLength)).value_or("accepted");
}

// The preset, changed by `change`.
template <class Change>
std::string RefusedField(const char* preset, const Change& change) {
  AttentionPlan plan = *FindAttentionPreset(preset);
  if (plan.prior == PriorRule::kSta) plan.grid = {1, 32, 32};
  change(&plan);
  return RefusedField(plan);
}

TEST(ValidatePlanTest, EveryPresetIsValid) {
  for (const AttentionPreset& preset : AttentionPresets()) {
    EXPECT_EQ(RefusedField(preset.plan.preset.c_str(), [](AttentionPlan*) {}), "accepted")
        << preset.plan.preset;
  }
}

TEST(ValidatePlanTest, OutOfRangeNumbersAreNamed) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double share : {0.0, -0.1, 1.01, nan}) {
    EXPECT_EQ(RefusedField({.ratio = share}), "attention.ratio") << share;
    EXPECT_EQ(RefusedField({.mass = share}), "attention.mass") << share;
    EXPECT_EQ(RefusedField({.relevant_share = share}), "attention.relevant_share") << share;
  }
  for (const double share : {-0.01, 1.01, nan}) {
    EXPECT_EQ(RefusedField({.skip = share}), "attention.skip") << share;
    EXPECT_EQ(RefusedField({.min_retained_mass = share}), "attention.min_retained_mass") << share;
  }
  EXPECT_EQ(RefusedField({.sink_blocks = -1}), "attention.sink_blocks");
  EXPECT_EQ(RefusedField({.window_blocks = -1}), "attention.window_blocks");
  EXPECT_EQ(RefusedField({.sort_blocks = -1}), "attention.sort_blocks");
  EXPECT_EQ(RefusedField({.refresh_every = -1}), "attention.refresh_every");
  for (const int block : {0, 16, 48, 512, -32}) {
    EXPECT_EQ(RefusedField({.block_tokens = block}), "attention.block_tokens") << block;
  }
}

TEST(ValidatePlanTest, RulesThatNeedEachOtherAreRefusedAlone) {
  EXPECT_EQ(RefusedField({.score = ScoreRule::kMean}), "attention.select");
  EXPECT_EQ(RefusedField({.select = SelectRule::kMass}), "attention.score");
  EXPECT_EQ(RefusedField("sparsed_compat", [](AttentionPlan* p) { p->score = ScoreRule::kMean; }),
            "attention.score");
  EXPECT_EQ(RefusedField("window", [](AttentionPlan* p) { p->min_retained_mass = 0.5; }),
            "attention.min_retained_mass");
  EXPECT_EQ(RefusedField("sparsed_compat", [](AttentionPlan* p) { p->min_retained_mass = 0.5; }),
            "attention.min_retained_mass");
  EXPECT_EQ(RefusedField("sparsed", [](AttentionPlan* p) { p->refresh_every = 1; }),
            "attention.refresh_every");
  EXPECT_EQ(RefusedField("sparsed", [](AttentionPlan* p) { p->refresh_every = 2; }), "accepted");
}

TEST(ValidatePlanTest, RelevanceNeedsTheMassOfEveryLayer) {
  const auto share = [](AttentionPlan* p) { p->relevant_share = 0.5; };
  EXPECT_EQ(RefusedField("sparsed", share), "accepted");
  for (const char* preset : {"dense", "sparsed_compat", "ba_att", "nabla", "window"}) {
    EXPECT_EQ(RefusedField(preset, share), "attention.relevant_share") << preset;
  }
  EXPECT_EQ(RefusedField("sparsed",
                         [](AttentionPlan* p) {
                           p->select = SelectRule::kTopK;
                           p->reorder = ReorderRule::kNormK;
                           p->relevant_share = 0.5;
                         }),
            "attention.relevant_share");
}

TEST(ValidatePlanTest, RulesOfTheCanvasOrderAreRefusedInAnother) {
  const auto sort = [](AttentionPlan* p) { p->reorder = ReorderRule::kNormK; };
  EXPECT_EQ(RefusedField("dense", sort), "attention.reorder");
  EXPECT_EQ(RefusedField("sparsed", sort), "attention.reorder");
  EXPECT_EQ(RefusedField("sparsed_compat", sort), "attention.reorder");
  EXPECT_EQ(RefusedField("window", sort), "attention.reorder");
  EXPECT_EQ(RefusedField("nabla", sort), "accepted");
  EXPECT_EQ(RefusedField("sparsed",
                         [&](AttentionPlan* p) {
                           p->select = SelectRule::kTopK;
                           sort(p);
                         }),
            "accepted");
}

TEST(ValidatePlanTest, AVideosGridMustFitTheCanvasAndItsTiles) {
  const auto grid = [](Extent3 extent) {
    return RefusedField("nabla_sta", [extent](AttentionPlan* p) { p->grid = extent; });
  };
  EXPECT_EQ(grid({}), "attention.grid");
  EXPECT_EQ(grid({1, 32, 32}), "accepted");
  EXPECT_EQ(grid({4, 16, 16}), "accepted");
  EXPECT_EQ(grid({1, 32, 40}), "attention.grid");  // 1280 tokens
  EXPECT_EQ(grid({1, 4, 256}), "attention.grid");  // h is no multiple of 8
  EXPECT_EQ(grid({-1, 32, -32}), "attention.grid");
  EXPECT_EQ(grid({65536, 65536, 65536}), "attention.grid");  // no overflow
  EXPECT_EQ(RefusedField("nabla_sta", [](AttentionPlan* p) { p->block_tokens = 128; }),
            "attention.block_tokens");
  EXPECT_EQ(RefusedField("nabla_sta", [](AttentionPlan* p) { p->reorder = ReorderRule::kNone; }),
            "attention.reorder");
  EXPECT_EQ(RefusedField("nabla_sta",
                         [](AttentionPlan* p) {
                           p->sta_window = {3, 0, 3};
                         }),
            "attention.sta_window");
}

}  // namespace
}  // namespace sparsed
