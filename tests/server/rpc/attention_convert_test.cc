// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/attention_convert.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "engine/base/invalid_field.h"
#include "tests/support/matchers.h"

namespace sparsed {
namespace {

using ::sparsed::testing::IsOk;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int32_t kCanvas = 768;  // 3 x 16 x 16

v1::Attention Parse(const std::string& text) {
  v1::Attention attention;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &attention)) << text;
  return attention;
}

absl::StatusOr<AttentionPlan> Resolve(const std::string& text) {
  return ResolveAttention(Parse(text), "dense", kCanvas);
}

// "path: message" of the refusal.
std::string Refusal(const std::string& text) {
  const absl::Status status = Resolve(text).status();
  return absl::IsInvalidArgument(status)
             ? InvalidFieldPath(status).value_or("no path") + ": " + std::string(status.message())
             : "accepted";
}

TEST(AttentionConvertTest, EveryFieldReachesThePlan) {
  ASSERT_OK_AND_ASSIGN(const AttentionPlan ranked,
                       Resolve(R"(preset: "ba_att" score: "mean" select: "top_k" ratio: 0.25
                                  reorder: "norm_k" sort_blocks: 2 skip: 0.125 refresh_every: 3
                                  min_retained_mass: 0.75 block_tokens: 32 guard: false)"));
  EXPECT_EQ(ranked.preset, "ba_att");
  EXPECT_EQ(ranked.score, ScoreRule::kMean);
  EXPECT_EQ(ranked.select, SelectRule::kTopK);
  EXPECT_EQ(ranked.reorder, ReorderRule::kNormK);
  EXPECT_EQ(ranked.prior, PriorRule::kNone);
  EXPECT_EQ(ranked.ratio, 0.25);
  EXPECT_EQ(ranked.sort_blocks, 2);
  EXPECT_EQ(ranked.skip, 0.125);
  EXPECT_EQ(ranked.refresh_every, 3);
  EXPECT_EQ(ranked.min_retained_mass, 0.75);
  EXPECT_EQ(ranked.block_tokens, 32);
  EXPECT_FALSE(ranked.guard);

  ASSERT_OK_AND_ASSIGN(const AttentionPlan relevance,
                       Resolve(R"(preset: "sparsed" relevant_share: 0.25)"));
  EXPECT_EQ(relevance.relevant_share, 0.25);

  ASSERT_OK_AND_ASSIGN(const AttentionPlan window,
                       Resolve(R"(preset: "window" sink_blocks: 2 window_blocks: 3)"));
  EXPECT_EQ(window.sink_blocks, 2);
  EXPECT_EQ(window.window_blocks, 3);
  EXPECT_TRUE(window.guard);

  ASSERT_OK_AND_ASSIGN(const AttentionPlan video,
                       Resolve(R"(preset: "nabla_sta" mass: 0.5 grid { t: 3 h: 16 w: 16 }
                                  sta_window { t: 1 h: 2 w: 3 })"));
  EXPECT_EQ(video.mass, 0.5);
  EXPECT_EQ(video.grid, (Extent3{3, 16, 16}));
  EXPECT_EQ(video.sta_window, (Extent3{1, 2, 3}));
}

TEST(AttentionConvertTest, UnsetFieldsAreThePresets) {
  for (const AttentionPreset& preset : AttentionPresets()) {
    if (preset.plan.prior == PriorRule::kSta) continue;  // needs a grid
    ASSERT_OK_AND_ASSIGN(const AttentionPlan plan, ResolveAttention({}, preset.plan.preset, 4096));
    EXPECT_EQ(EchoAttention(plan).SerializeAsString(),
              EchoAttention(preset.plan).SerializeAsString());
  }
}

// Numbers beside the rules, which the presets do not have.
const char* const kComposed[] = {
    R"(preset: "sparsed" ratio: 0.1 skip: 0.5 block_tokens: 32 guard: false)",
    R"(preset: "sparsed" select: "mass" mass: 0.9)",
    R"(preset: "sparsed" refresh_every: 4 min_retained_mass: 0.5)",
    R"(preset: "relevance" ratio: 0.1 relevant_share: 0.5)",
    R"(preset: "sparsed" prior: "sink_window" sink_blocks: 2 window_blocks: 0)",
    R"(preset: "sparsed" score: "none" select: "none")",
    R"(preset: "sparsed" score: "none" select: "none" prior: "sink_window" sink_blocks: 1)",
    R"(preset: "dense")",
    R"(preset: "dense" prior: "sink_window" window_blocks: 2)",
    R"(preset: "dense" score: "mean_cov" select: "top_k" ratio: 0.5)",
    R"(preset: "dense" score: "mean" select: "mass" mass: 0.7 skip: 1)",
    R"(preset: "ba_att" reorder: "norm_k" sort_blocks: 0 refresh_every: 0)",
    R"(preset: "window" score: "mean" select: "top_ratio" ratio: 0.2)",
    R"(preset: "nabla" reorder: "fractal" grid { t: 3 h: 16 w: 16 })",
    R"(preset: "nabla_sta" grid { t: 3 h: 16 w: 16 } sta_window { t: 1 h: 1 w: 1 })",
    R"(preset: "sparsed_compat" block_tokens: 256)",
};

class AttentionEchoTest : public ::testing::TestWithParam<const char*> {};

TEST_P(AttentionEchoTest, ResolvesToTheSamePlan) {
  ASSERT_OK_AND_ASSIGN(const AttentionPlan plan, Resolve(GetParam()));
  const v1::Attention echo = EchoAttention(plan);
  ASSERT_OK_AND_ASSIGN(const AttentionPlan again, ResolveAttention(echo, "window", kCanvas));
  EXPECT_EQ(EchoAttention(again).SerializeAsString(), echo.SerializeAsString());
  EXPECT_EQ(again.preset, plan.preset);
  EXPECT_EQ(again.score, plan.score);
  EXPECT_EQ(again.select, plan.select);
  EXPECT_EQ(again.reorder, plan.reorder);
  EXPECT_EQ(again.prior, plan.prior);
  EXPECT_EQ(again.ratio, plan.ratio);
  EXPECT_EQ(again.mass, plan.mass);
  EXPECT_EQ(again.min_retained_mass, plan.min_retained_mass);
  EXPECT_EQ(again.relevant_share, plan.relevant_share);
  EXPECT_EQ(again.sink_blocks, plan.sink_blocks);
  EXPECT_EQ(again.window_blocks, plan.window_blocks);
  EXPECT_EQ(again.sta_window, plan.sta_window);
  EXPECT_EQ(again.grid, plan.grid);
  EXPECT_EQ(again.sort_blocks, plan.sort_blocks);
  EXPECT_EQ(again.skip, plan.skip);
  EXPECT_EQ(again.refresh_every, plan.refresh_every);
  EXPECT_EQ(again.block_tokens, plan.block_tokens);
  EXPECT_EQ(again.guard, plan.guard);
}

INSTANTIATE_TEST_SUITE_P(Composed, AttentionEchoTest, ::testing::ValuesIn(kComposed));

TEST(AttentionConvertTest, EchoHoldsTheRulesAndOnlyWhatThePlanReads) {
  const auto echo = [](const std::string& text) {
    const auto plan = Resolve(text);
    return plan.ok() ? EchoAttention(*plan).ShortDebugString() : plan.status().ToString();
  };
  EXPECT_EQ(echo(R"(preset: "dense")"),
            R"(preset: "dense" score: "none" select: "none" reorder: "none" prior: "none")");
  EXPECT_EQ(echo(R"(preset: "sparsed" select: "mass" mass: 0.5)"),
            R"(preset: "sparsed" skip: 0.2 block_tokens: 128 score: "pooled_mass" select: "mass" )"
            R"(reorder: "none" prior: "none" mass: 0.5 refresh_every: 0 min_retained_mass: 0 )"
            R"(guard: true relevant_share: 1)");
  EXPECT_EQ(echo(R"(preset: "window")"),
            R"(preset: "window" skip: 0 block_tokens: 128 score: "none" select: "none" )"
            R"(reorder: "none" prior: "sink_window" sink_blocks: 1 window_blocks: 4 guard: true)");
}

TEST(AttentionConvertTest, RulesOverDenseAreSparseFromTheFirstStep) {
  ASSERT_OK_AND_ASSIGN(const AttentionPlan plan,
                       Resolve(R"(prior: "sink_window" sink_blocks: 1 window_blocks: 1)"));
  EXPECT_EQ(plan.preset, "dense");
  EXPECT_TRUE(plan.sparse());
  EXPECT_EQ(plan.skip, 0);
  ASSERT_OK_AND_ASSIGN(const AttentionPlan late, Resolve(R"(prior: "sink_window" skip: 0.5)"));
  EXPECT_EQ(late.skip, 0.5);
}

TEST(AttentionConvertTest, AFieldThatWouldBeIgnoredIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(preset: "dense" ratio: 0.5)",
       "attention.ratio: attention.ratio is 0.5: has no meaning with preset \"dense\" and no "
       "rules"},
      {R"(preset: "dense" skip: 0.5)", "attention.skip: "},
      {R"(preset: "dense" block_tokens: 32)", "attention.block_tokens: "},
      {R"(preset: "dense" guard: false)", "attention.guard: attention.guard is false: "},
      {R"(preset: "dense" refresh_every: 1)", "attention.refresh_every: "},
      {R"(preset: "sparsed" score: "none" select: "none" ratio: 0.5)",
       "has no meaning with preset \"sparsed\" and no rules"},
      {R"(preset: "nabla" ratio: 0.5)",
       "attention.ratio is 0.5: has no meaning with select \"mass\": it belongs to \"top_ratio\", "
       "\"top_ratio_compat\" and \"top_k\""},
      {R"(preset: "ba_att" mass: 0.5)",
       "attention.mass is 0.5: has no meaning with select \"top_k\": it belongs to \"mass\""},
      {R"(preset: "sparsed" sink_blocks: 2)",
       "attention.sink_blocks is 2: has no meaning with prior"},
      {R"(preset: "sparsed" window_blocks: 2)", "attention.window_blocks is 2: has no meaning"},
      {R"(preset: "sparsed" sort_blocks: 2)",
       "attention.sort_blocks is 2: has no meaning with reorder \"none\": it belongs to \"norm_k\" "
       "and \"norm_qk\""},
      {R"(preset: "nabla" sta_window { t: 1 h: 1 w: 1 })",
       "attention.sta_window is 1x1x1: has no meaning with prior \"none\""},
      {R"(preset: "nabla" grid { t: 3 h: 16 w: 16 })",
       "attention.grid is 3x16x16: has no meaning with reorder \"none\""},
      {R"(preset: "window" refresh_every: 2)",
       "attention.refresh_every is 2: has no meaning with score \"none\": it belongs to plans with "
       "a score"},
      {R"(preset: "window" min_retained_mass: 0.5)", "attention.min_retained_mass: "},
      {R"(preset: "window" ratio: nan)", "attention.ratio is nan: has no meaning with select"},
  };
  for (const auto& [text, refusal] : cases) EXPECT_THAT(Refusal(text), HasSubstr(refusal)) << text;
}

TEST(AttentionConvertTest, ThePresetsOwnValueIsLetThrough) {
  for (const char* text :
       {R"(preset: "dense" ratio: 1 skip: 1 block_tokens: 128 guard: true refresh_every: 0)",
        R"(preset: "nabla" ratio: 1 sort_blocks: 4 grid {})", R"(preset: "window" mass: 1)"}) {
    EXPECT_THAT(Resolve(text), IsOk()) << text;
  }
}

TEST(AttentionConvertTest, ARuleThatLacksAnotherIsNamed) {
  EXPECT_THAT(Refusal(R"(preset: "dense" select: "top_k" ratio: 0.5 skip: 0.1)"),
              AllOf(HasSubstr("attention.score: "), HasSubstr("needs a score")));
  EXPECT_THAT(Refusal(R"(preset: "dense" score: "mean" refresh_every: 1)"),
              AllOf(HasSubstr("attention.select: "), HasSubstr("needs a selection")));
}

TEST(AttentionConvertTest, CountsOverTheirLimitAreRefusedBeforeTheyAreNarrowed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(preset: "window" sink_blocks: 1048577)",
       "attention.sink_blocks is 1048577: must be at most 1048576"},
      {R"(preset: "window" window_blocks: 4294967295)", "attention.window_blocks is 4294967295: "},
      {R"(preset: "ba_att" sort_blocks: 4294967295)", "attention.sort_blocks is 4294967295: "},
      {R"(preset: "nabla" refresh_every: 4294967295)", "attention.refresh_every is 4294967295: "},
      {R"(preset: "sparsed" block_tokens: 4294967295)",
       "attention.block_tokens is 4294967295: must be 32, 64, 128 or 256"},
      {R"(preset: "nabla_sta" grid { t: 4294967295 h: 4294967288 w: 4294967288 })",
       "attention.grid is 4294967295x4294967288x4294967288: t, h and w must be at most 1048576"},
      {R"(preset: "nabla_sta" grid { t: 3 h: 16 w: 16 } sta_window { t: 1 h: 1 w: 2147483648 })",
       "attention.sta_window is 1x1x2147483648: "},
  };
  for (const auto& [text, refusal] : cases) EXPECT_THAT(Refusal(text), HasSubstr(refusal)) << text;
  EXPECT_THAT(Resolve(R"(preset: "window" sink_blocks: 1048576 window_blocks: 1048576)"), IsOk());
}

}  // namespace
}  // namespace sparsed
