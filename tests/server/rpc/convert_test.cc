// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/invalid_field.h"
#include "tests/support/matchers.h"

namespace sparsed {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

ServedModel SmallModel() {
  ServedModel model;
  model.info.vocabulary_size = 100;
  model.info.max_length = 1000;
  model.info.mask_token = 99;
  model.info.end_tokens = {5, 6};
  return model;
}

absl::StatusOr<Request> Resolve(const v1::GenerateRequest& request, size_t prompt_tokens = 10) {
  return ResolveRequest(request, std::vector<int32_t>(prompt_tokens, 1), SmallModel());
}

v1::GenerateRequest WithGenLength(uint32_t gen_length) {
  v1::GenerateRequest request;
  request.set_prompt("x");
  request.mutable_decoding()->set_gen_length(gen_length);
  return request;
}

TEST(ConvertTest, UnsetFieldsTakeTheDefaults) {
  ASSERT_OK_AND_ASSIGN(const Request request, Resolve(v1::GenerateRequest()));
  EXPECT_EQ(request.canvas.prompt_length, 10);
  EXPECT_EQ(request.canvas.generation_length(), 128);
  EXPECT_EQ(request.canvas.tokens.back(), 99);
  EXPECT_EQ(request.policy.steps, 128);
  EXPECT_EQ(request.policy.block_length, 32);
  EXPECT_EQ(request.policy.remasking, Remasking::kLowConfidence);
  EXPECT_EQ(request.policy.temperature, 0);
  EXPECT_EQ(request.policy.cfg_scale, 0);
  EXPECT_EQ(request.policy.end_tokens, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(request.attention.preset, "dense");
  EXPECT_FALSE(request.want_provisional);
}

TEST(ConvertTest, UnsetFieldsFollowTheModelsGenerationConfig) {
  ServedModel model = SmallModel();
  model.defaults = {.gen_length = 64, .steps = 16, .block_length = 16, .temperature = 0.7};
  ASSERT_OK_AND_ASSIGN(const Request request, ResolveRequest({}, {1, 2, 3}, model));
  EXPECT_EQ(request.canvas.generation_length(), 64);
  EXPECT_EQ(request.policy.steps, 16);
  EXPECT_EQ(request.policy.block_length, 16);
  EXPECT_EQ(request.policy.temperature, 0.7);
  EXPECT_EQ(DescribeModel(model).defaults().decoding().gen_length(), 64u);
}

TEST(ConvertTest, TheGridIsMeasuredAgainstPromptAndGeneration) {
  v1::GenerateRequest asked = WithGenLength(54);
  asked.mutable_attention()->set_preset("nabla_sta");
  v1::Extent3& grid = *asked.mutable_attention()->mutable_grid();
  grid.set_t(1);
  grid.set_h(8);
  grid.set_w(8);
  EXPECT_THAT(Resolve(asked, 10), IsOk());
  EXPECT_EQ(InvalidFieldPath(Resolve(asked, 11).status()), "attention.grid");
}

TEST(ConvertTest, BlockLengthDefaultsToTheLargestDivisorUpToItsDefault) {
  const std::pair<uint32_t, int32_t> cases[] = {{128, 32}, {100, 25}, {96, 32}, {48, 24},
                                                {31, 31},  {37, 1},   {1, 1}};
  for (const auto& [gen_length, block_length] : cases) {
    ASSERT_OK_AND_ASSIGN(const Request request, Resolve(WithGenLength(gen_length)));
    EXPECT_EQ(request.policy.block_length, block_length) << gen_length;
  }
}

TEST(ConvertTest, StepsDefaultToAMultipleOfTheBlocks) {
  // 300 = 12 blocks of 25: the largest multiple of 12 up to 128 is 120.
  ASSERT_OK_AND_ASSIGN(const Request some, Resolve(WithGenLength(300)));
  EXPECT_EQ(some.policy.steps, 120);
  // 509 is prime: 509 blocks of one token need a step each, more than the default.
  ASSERT_OK_AND_ASSIGN(const Request many, Resolve(WithGenLength(509)));
  EXPECT_EQ(many.policy.block_length, 1);
  EXPECT_EQ(many.policy.steps, 509);
  ASSERT_OK_AND_ASSIGN(const Request few, Resolve(WithGenLength(20)));
  EXPECT_EQ(few.policy.steps, 20);
}

TEST(ConvertTest, SetFieldsAreTakenAsTheyAre) {
  v1::GenerateRequest asked = WithGenLength(64);
  v1::Decoding& decoding = *asked.mutable_decoding();
  decoding.set_steps(8);
  decoding.set_block_length(16);
  decoding.set_remasking(v1::REMASKING_RANDOM);
  decoding.set_temperature(0.5);
  decoding.set_seed(uint64_t{1} << 63);
  decoding.set_cfg_scale(1.5);
  decoding.set_stop_on_end(false);
  asked.mutable_attention()->set_preset("sparsed");
  asked.mutable_attention()->set_ratio(0.25);
  asked.mutable_attention()->set_skip(0);
  asked.mutable_attention()->set_block_tokens(32);
  asked.mutable_streaming()->set_provisional(true);
  ASSERT_OK_AND_ASSIGN(const Request request, Resolve(asked));
  EXPECT_EQ(request.policy.steps, 8);
  EXPECT_EQ(request.policy.block_length, 16);
  EXPECT_EQ(request.policy.remasking, Remasking::kRandom);
  EXPECT_EQ(request.policy.temperature, 0.5);
  EXPECT_EQ(request.policy.seed, uint64_t{1} << 63);
  EXPECT_EQ(request.policy.cfg_scale, 1.5);
  EXPECT_TRUE(request.policy.end_tokens.empty());
  EXPECT_EQ(request.attention.score, ScoreRule::kPooledMass);
  EXPECT_EQ(request.attention.ratio, 0.25);
  EXPECT_EQ(request.attention.skip, 0);
  EXPECT_EQ(request.attention.block_tokens, 32);
  EXPECT_TRUE(request.want_provisional);
}

TEST(ConvertTest, AnEchoResolvesToItself) {
  v1::GenerateRequest asked = WithGenLength(96);
  asked.mutable_attention()->set_preset("sparsed_compat");
  ASSERT_OK_AND_ASSIGN(const Request request, Resolve(asked));
  const v1::Resolved echo = EchoResolved(request);
  *asked.mutable_decoding() = echo.decoding();
  *asked.mutable_attention() = echo.attention();
  ASSERT_OK_AND_ASSIGN(const Request again, Resolve(asked));
  EXPECT_EQ(EchoResolved(again).SerializeAsString(), echo.SerializeAsString());
  EXPECT_EQ(again.policy.seed, request.policy.seed);
}

TEST(ConvertTest, UnsetSeedsDiffer) {
  ASSERT_OK_AND_ASSIGN(const Request one, Resolve(v1::GenerateRequest()));
  ASSERT_OK_AND_ASSIGN(const Request two, Resolve(v1::GenerateRequest()));
  EXPECT_NE(one.policy.seed, two.policy.seed);
}

TEST(ConvertTest, TheWholeCanvasMayBeUsed) {
  EXPECT_THAT(Resolve(WithGenLength(990)), IsOk());
  EXPECT_THAT(Resolve(WithGenLength(991)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("decoding.gen_length is 991: must be in 1..990 (max_length 1000 "
                                 "- 10 prompt tokens)")));
}

TEST(ConvertTest, APromptThatLeavesNoRoomIsNamedByItsInput) {
  v1::GenerateRequest asked;
  asked.mutable_token_ids()->add_ids(1);
  const absl::Status status = Resolve(asked, 1000).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_length 1000")));
  EXPECT_EQ(InvalidFieldPath(status), "token_ids.ids");
}

TEST(ConvertTest, DescribedDefaultsAreThoseOfAnEmptyRequest) {
  const ServedModel model = SmallModel();
  const v1::GetModelResponse described = DescribeModel(model);
  ASSERT_OK_AND_ASSIGN(const Request request, Resolve(v1::GenerateRequest()));
  v1::Resolved echo = EchoResolved(request);
  echo.mutable_decoding()->clear_seed();
  EXPECT_EQ(described.defaults().SerializeAsString(), echo.SerializeAsString());
}

TEST(ConvertTest, EveryPresetIsDescribed) {
  const v1::GetModelResponse described = DescribeModel(SmallModel());
  ASSERT_EQ(described.presets_size(), static_cast<int>(AttentionPresets().size()));
  EXPECT_EQ(described.presets(0).name(), "dense");
  for (const v1::Preset& preset : described.presets()) {
    EXPECT_NE(preset.description(), "");
    EXPECT_EQ(preset.attention().preset(), preset.name());
  }
}

}  // namespace
}  // namespace sparsed
