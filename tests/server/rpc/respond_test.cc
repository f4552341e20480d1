// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/respond.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/rpc/demo_engine.h"
#include "tests/support/matchers.h"

namespace sparsed {
namespace {

using ::testing::ElementsAre;

class RespondTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(
        model_, LoadServedModel(testing::DemoModelDir(), testing::DemoModelInfo(), "dense"));
  }

  // A finished canvas: one prompt token, then `text`, then the given ids.
  FinishedEvent Finished(const std::string& text, const std::vector<int32_t>& rest) {
    FinishedEvent event;
    event.canvas.tokens = {10};
    event.canvas.prompt_length = 1;
    auto ids = EncodeText(model_, "text", text);
    EXPECT_THAT(ids, testing::IsOk());
    event.canvas.tokens.insert(event.canvas.tokens.end(), ids->begin(), ids->end());
    event.canvas.tokens.insert(event.canvas.tokens.end(), rest.begin(), rest.end());
    return event;
  }

  ServedModel model_;
};

TEST_F(RespondTest, EndTokensAreTheModelsAndTheTokenizersEndOfTurn) {
  EXPECT_THAT(model_.info.end_tokens, ElementsAre(1, 5));  // <|endoftext|>, <|eot_id|>
}

TEST_F(RespondTest, TextEndsBeforeTheFirstEndToken) {
  const FinishedEvent event = Finished("The fox", {5, 300, 1});
  ASSERT_OK_AND_ASSIGN(const v1::GenerateResponse response, MakeResponse(event, model_));
  EXPECT_EQ(response.text(), "The fox");
  EXPECT_EQ(response.token_ids_size(), event.canvas.generation_length());
  EXPECT_EQ(response.usage().generated_tokens(),
            static_cast<uint32_t>(event.canvas.generation_length() - 3));
}

TEST_F(RespondTest, TextWithoutAnEndTokenIsWhole) {
  ASSERT_OK_AND_ASSIGN(const v1::GenerateResponse response,
                       MakeResponse(Finished("The fox ran.", {}), model_));
  EXPECT_EQ(response.text(), "The fox ran.");
  EXPECT_EQ(response.usage().generated_tokens(), static_cast<uint32_t>(response.token_ids_size()));
}

TEST_F(RespondTest, SpecialTokensAndUnknownIdsAddNoText) {
  // 3 is <|start_header_id|>; a padded vocabulary has ids the tokenizer does not know.
  model_.info.vocabulary_size = 5000;
  ASSERT_OK_AND_ASSIGN(const v1::GenerateResponse response,
                       MakeResponse(Finished("The fox", {3, 4999}), model_));
  EXPECT_EQ(response.text(), "The fox");
}

TEST_F(RespondTest, UsageTimingsAndSparsityAreCopied) {
  FinishedEvent event = Finished("x", {});
  event.finish_reason = FinishReason::kEndOfText;
  event.usage = {.prompt_tokens = 1, .committed_tokens = 30, .steps = 10, .forward_passes = 20};
  event.timings.queue_seconds = 0.5;
  event.timings.total_seconds = 2;
  event.timings.first_commit_seconds = 0.75;
  event.timings.phase(StepPhase::kDense) = {.steps = 7, .seconds = 1};
  event.timings.phase(StepPhase::kSparse) = {.steps = 3, .seconds = 0.25};
  event.timings.phase(StepPhase::kRebuild) = {.steps = 2, .seconds = 0.5};
  event.timings.mask_build_seconds = 0.125;
  event.sparsity.mask_density = 0.3;
  event.sparsity.retained_mass = 0.9;
  event.sparsity.mean_density = 0.6;
  event.sparsity.mask_bytes = 64;
  ASSERT_OK_AND_ASSIGN(const v1::GenerateResponse response, MakeResponse(event, model_));
  EXPECT_EQ(response.finish_reason(), v1::FINISH_REASON_END_OF_TEXT);
  EXPECT_EQ(response.usage().prompt_tokens(), 1u);
  EXPECT_EQ(response.usage().steps(), 10u);
  EXPECT_EQ(response.usage().forward_passes(), 20u);
  EXPECT_EQ(response.usage().tokens_per_forward(), 1.5);
  EXPECT_EQ(response.timings().queue_seconds(), 0.5);
  EXPECT_EQ(response.timings().total_seconds(), 2);
  EXPECT_EQ(response.timings().first_commit_seconds(), 0.75);
  EXPECT_EQ(response.timings().mask_build_seconds(), 0.125);
  ASSERT_EQ(response.timings().phases_size(), 3);  // phases without a step are left out
  EXPECT_EQ(response.timings().phases(0).phase(), v1::PHASE_DENSE);
  EXPECT_EQ(response.timings().phases(1).phase(), v1::PHASE_SPARSE);
  EXPECT_EQ(response.timings().phases(1).steps(), 3u);
  EXPECT_EQ(response.timings().phases(1).seconds(), 0.25);
  EXPECT_EQ(response.timings().phases(2).phase(), v1::PHASE_REBUILD);
  EXPECT_EQ(response.timings().phases(2).steps(), 2u);
  EXPECT_EQ(response.sparsity().density(), 0.3);
  EXPECT_EQ(response.sparsity().retained_mass(), 0.9);
  EXPECT_EQ(response.sparsity().mean_density(), 0.6);
  EXPECT_EQ(response.sparsity().mask_bytes(), 64u);
}

TEST_F(RespondTest, LayersAreTheMeansOfTheirHeads) {
  model_.info.heads = 2;
  FinishedEvent event = Finished("x", {});
  event.sparsity.heads = {{0.25F, 0.5F}, {0.75F, 1}, {0.125F, 0.75F}, {0.375F, 0.25F}};
  ASSERT_OK_AND_ASSIGN(const v1::GenerateResponse response, MakeResponse(event, model_));
  ASSERT_EQ(response.sparsity().layers_size(), 2);
  EXPECT_EQ(response.sparsity().layers(0).density(), 0.5);
  EXPECT_EQ(response.sparsity().layers(0).retained_mass(), 0.75);
  EXPECT_EQ(response.sparsity().layers(1).density(), 0.25);
  EXPECT_EQ(response.sparsity().layers(1).retained_mass(), 0.5);
}

TEST_F(RespondTest, GuardIsNamed) {
  FinishedEvent event = Finished("x", {});
  event.sparsity.guard = GuardReason::kShortCanvas;
  ASSERT_OK_AND_ASSIGN(const v1::GenerateResponse response, MakeResponse(event, model_));
  EXPECT_EQ(response.sparsity().guard(), "short_canvas");
}

TEST_F(RespondTest, UnsetSparsityStaysUnset) {
  ASSERT_OK_AND_ASSIGN(const v1::GenerateResponse response,
                       MakeResponse(Finished("x", {}), model_));
  EXPECT_FALSE(response.sparsity().has_density());
  EXPECT_FALSE(response.sparsity().has_retained_mass());
  EXPECT_FALSE(response.sparsity().has_guard());
  EXPECT_EQ(response.sparsity().layers_size(), 0);
}

TEST_F(RespondTest, EditsCarryTheBytesOfTheirToken) {
  ProgressEvent event;
  event.step = 3;
  event.total_steps = 8;
  event.phase = StepPhase::kDenseAndBuild;
  ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> fox, EncodeText(model_, "text", " fox"));
  event.committed = {{12, fox[0], 0.5F}, {13, 5, 0.25F}};
  event.provisional = {{11, fox[0], 0.125F}};
  event.density = 0.4;
  event.retained_mass = 0.95;
  event.step_seconds = 0.01;
  const v1::Progress progress = MakeProgress(event, *model_.tokenizer);
  EXPECT_EQ(progress.step(), 3u);
  EXPECT_EQ(progress.steps(), 8u);
  EXPECT_EQ(progress.phase(), v1::PHASE_BUILD);
  EXPECT_EQ(progress.density(), 0.4);
  EXPECT_EQ(progress.retained_mass(), 0.95);
  EXPECT_EQ(progress.step_seconds(), 0.01);
  ASSERT_EQ(progress.edits_size(), 3);
  EXPECT_EQ(progress.edits(0).position(), 12u);
  EXPECT_EQ(progress.edits(0).piece(), model_.tokenizer->TokenBytes(fox[0]));
  EXPECT_NE(progress.edits(0).piece(), "");
  EXPECT_TRUE(progress.edits(0).committed());
  EXPECT_EQ(progress.edits(0).confidence(), 0.5F);
  EXPECT_EQ(progress.edits(1).piece(), "");  // <|eot_id|>
  EXPECT_FALSE(progress.edits(2).committed());
  EXPECT_EQ(progress.edits(2).position(), 11u);
}

}  // namespace
}  // namespace sparsed
