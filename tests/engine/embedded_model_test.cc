// SPDX-License-Identifier: Apache-2.0
// The embedded model answers, with full attention and with sparse.
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/decode/commit.h"
#include "engine/engine.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "tests/support/matchers.h"

namespace sparsed {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;

TEST(EmbeddedModelTest, AnswersQuestionsDenseAndSparse) {
  const std::string dir = SPARSED_SOURCE_DIR "/models/demo-llada-17m";
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine, LoadEngine({.model_dir = dir}));
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::Load(dir + "/tokenizer.json"));
  ASSERT_OK_AND_ASSIGN(const auto chat, ChatTemplate::Load(dir + "/tokenizer_config.json"));
  const std::vector<ChatMessage> messages = {{"user", "What is 21 + 34?"}};
  for (const std::string preset : {"dense", "sparsed"}) {
    ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> prompt,
                         chat->Encode(messages, true, *tokenizer));
    Request request;
    request.canvas = Canvas::FromPrompt(prompt, 32, engine->model().mask_token);
    request.policy.steps = 32;
    request.policy.block_length = 32;
    request.policy.end_tokens = {*tokenizer->TokenId("<|eot_id|>")};
    ASSERT_OK_AND_ASSIGN(request.attention, FindAttentionPreset(preset));
    request.attention.block_tokens = 32;
    request.attention.guard = false;
    Canvas canvas = request.canvas;
    ASSERT_OK_AND_ASSIGN(const RequestId id, engine->Admit(request));
    for (bool finished = false; !finished;) {
      const StepResult result = engine->Step({id})[0];
      ASSERT_THAT(result.status, IsOk());
      CommitEdits(result.committed, engine->model().mask_token, &canvas);
      finished = result.finished;
    }
    const absl::Span<const int32_t> generated =
        absl::MakeConstSpan(canvas.tokens).subspan(static_cast<size_t>(canvas.prompt_length));
    ASSERT_OK_AND_ASSIGN(const std::string answer, tokenizer->Decode(generated, true));
    EXPECT_THAT(answer, HasSubstr("55")) << preset;
  }
}

}  // namespace
}  // namespace sparsed
