// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/attention/plan.h"
#include "engine/base/invalid_field.h"
#include "tests/support/matchers.h"

namespace sparsed {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

TEST(PresetsTest, EveryPresetIsValidAndFindsItself) {
  for (const AttentionPreset& preset : AttentionPresets()) {
    EXPECT_THAT(ValidateAttentionPlan(preset.plan), IsOk()) << preset.plan.preset;
    ASSERT_OK_AND_ASSIGN(const AttentionPlan plan, FindAttentionPreset(preset.plan.preset));
    EXPECT_EQ(plan.preset, preset.plan.preset);
  }
}

TEST(PresetsTest, SparsedIsThePapersLongContextSetting) {
  ASSERT_OK_AND_ASSIGN(const AttentionPlan plan, FindAttentionPreset("sparsed"));
  EXPECT_EQ(plan.ratio, 0.3);
  EXPECT_EQ(plan.skip, 0.2);
  EXPECT_EQ(plan.block_tokens, 128);
}

TEST(PresetsTest, UnknownNameListsTheKnownOnes) {
  const absl::Status status = FindAttentionPreset("sparse").status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("\"sparse\": must be one of dense, sparsed")));
  EXPECT_EQ(InvalidFieldPath(status), "attention.preset");
}

TEST(PresetsTest, OutOfRangeFieldsAreNamed) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto path = [](AttentionPlan plan) {
    return InvalidFieldPath(ValidateAttentionPlan(plan)).value_or("accepted");
  };
  for (const double ratio : {0.0, -0.1, 1.01, nan}) {
    EXPECT_EQ(path({.ratio = ratio}), "attention.ratio") << ratio;
  }
  for (const double skip : {-0.01, 1.01, nan}) {
    EXPECT_EQ(path({.skip = skip}), "attention.skip") << skip;
  }
  for (const int block : {0, 16, 48, 256, -32}) {
    EXPECT_EQ(path({.block_tokens = block}), "attention.block_tokens") << block;
  }
}

}  // namespace
}  // namespace sparsed
