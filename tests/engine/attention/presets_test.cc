// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/attention/plan.h"
#include "engine/base/invalid_field.h"
#include "tests/support/matchers.h"

namespace sparsed {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

TEST(PresetsTest, EveryPresetFindsItself) {
  for (const AttentionPreset& preset : AttentionPresets()) {
    ASSERT_OK_AND_ASSIGN(const AttentionPlan plan, FindAttentionPreset(preset.plan.preset));
    EXPECT_EQ(plan.preset, preset.plan.preset);
    EXPECT_EQ(plan.sparse(), plan.preset != "dense");
  }
}

TEST(PresetsTest, SparsedAndItsVariantsAreThePublishedSettings) {
  const auto expect = [](const char* preset, double ratio, double skip, int32_t block_tokens) {
    ASSERT_OK_AND_ASSIGN(const AttentionPlan plan, FindAttentionPreset(preset));
    EXPECT_EQ(plan.score, ScoreRule::kPooledMass);
    EXPECT_EQ(plan.select, SelectRule::kTopRatio);
    EXPECT_EQ(plan.ratio, ratio);
    EXPECT_EQ(plan.skip, skip);
    EXPECT_EQ(plan.block_tokens, block_tokens);
    EXPECT_EQ(plan.refresh_every, 0);
  };
  expect("sparsed", 0.3, 0.2, 128);
  expect("sparsed_chat", 0.35, 0.25, 64);
  expect("sparsed_code", 0.25, 0.3, 256);
}

TEST(PresetsTest, UnknownNameListsTheKnownOnes) {
  const absl::Status status = FindAttentionPreset("sparse").status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("\"sparse\": must be one of dense, sparsed")));
  EXPECT_EQ(InvalidFieldPath(status), "attention.preset");
}

TEST(RulesTest, EveryNameFindsItsRule) {
  for (const char* name : {"none", "pooled_mass", "mean", "mean_cov"}) {
    ASSERT_OK_AND_ASSIGN(const ScoreRule rule, FindScoreRule(name));
    EXPECT_STREQ(RuleName(rule), name);
  }
  for (const char* name : {"none", "top_ratio", "top_ratio_compat", "top_k", "mass"}) {
    ASSERT_OK_AND_ASSIGN(const SelectRule rule, FindSelectRule(name));
    EXPECT_STREQ(RuleName(rule), name);
  }
  for (const char* name : {"none", "norm_k", "norm_qk", "fractal"}) {
    ASSERT_OK_AND_ASSIGN(const ReorderRule rule, FindReorderRule(name));
    EXPECT_STREQ(RuleName(rule), name);
  }
  for (const char* name : {"none", "sink_window", "sta"}) {
    ASSERT_OK_AND_ASSIGN(const PriorRule rule, FindPriorRule(name));
    EXPECT_STREQ(RuleName(rule), name);
  }
}

TEST(RulesTest, UnknownNamesAreRefusedWithTheKnownOnes) {
  EXPECT_THAT(FindScoreRule("median"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("\"median\": must be one of none, pooled_mass, mean, mean_cov")));
  EXPECT_EQ(InvalidFieldPath(FindScoreRule("x").status()), "attention.score");
  EXPECT_EQ(InvalidFieldPath(FindSelectRule("x").status()), "attention.select");
  EXPECT_EQ(InvalidFieldPath(FindReorderRule("x").status()), "attention.reorder");
  EXPECT_EQ(InvalidFieldPath(FindPriorRule("x").status()), "attention.prior");
}

}  // namespace
}  // namespace sparsed
