// SPDX-License-Identifier: Apache-2.0
// Parity with transformers' apply_chat_template, recorded in golden/tokenizer/chat_templates.json.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/text/chat_template.h"
#include "tests/engine/text/text_fixtures.h"
#include "tests/support/golden.h"
#include "tests/support/matchers.h"

namespace sparsed::testing {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

class ChatTemplateGoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  // The recorded renderings of the parameter's template.
  static std::vector<nlohmann::json> Cases(const nlohmann::json& golden) {
    std::vector<nlohmann::json> cases;
    for (const auto& entry : golden["rendered"]) {
      if (entry["template"] == GetParam()) cases.push_back(entry);
    }
    return cases;
  }

  static std::vector<ChatMessage> Messages(const nlohmann::json& conversation) {
    std::vector<ChatMessage> messages;
    for (const auto& message : conversation) {
      messages.push_back({message["role"], message["content"]});
    }
    return messages;
  }

  static std::unique_ptr<ChatTemplate> Template(const nlohmann::json& golden,
                                                const nlohmann::json& entry) {
    std::vector<std::pair<std::string, std::string>> special_tokens;
    for (const char* name : {"bos_token", "eos_token"}) {
      if (entry[name].is_string()) special_tokens.emplace_back(name, entry[name]);
    }
    auto chat = ChatTemplate::FromSource(golden["templates"][GetParam()].get<std::string>(),
                                         special_tokens);
    EXPECT_THAT(chat, IsOk());
    return *std::move(chat);
  }
};

TEST_P(ChatTemplateGoldenTest, RendersAndEncodesTheSame) {
  GOLDEN_OR_SKIP(path, "tokenizer/chat_templates.json");
  const nlohmann::json golden = ReadJson(path);
  const std::string style = golden["tokenizer_of_template"][GetParam()];
  ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                       Tokenizer::Load(path.parent_path() / style / "tokenizer.json"));
  const std::vector<nlohmann::json> cases = Cases(golden);
  ASSERT_EQ(cases.size(), 26u);
  for (const nlohmann::json& entry : cases) {
    const std::string conversation = entry["conversation"];
    SCOPED_TRACE(conversation);
    const auto messages = Messages(golden["conversations"][conversation]);
    const bool prompt = entry["add_generation_prompt"];
    const auto chat = Template(golden, entry);
    const auto rendered = chat->Render(messages, prompt);
    if (entry.contains("error")) {
      const std::string words = entry["error"].get<std::string>().substr(strlen("TemplateError: "));
      EXPECT_THAT(rendered, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(words)));
      continue;
    }
    ASSERT_THAT(rendered, IsOk());
    EXPECT_EQ(*rendered, entry["rendered"].get<std::string>());
    EXPECT_EQ(*tokenizer->EncodeRendered(*rendered, {}), entry["ids"].get<Ids>());
    const auto ids = chat->Encode(messages, prompt, *tokenizer);
    ASSERT_THAT(ids, IsOk());
    EXPECT_EQ(*tokenizer->Decode(*ids, false), *tokenizer->Decode(entry["ids"].get<Ids>(), false));
    if (conversation == "injected_special") {
      EXPECT_NE(*ids, entry["ids"].get<Ids>());
    } else {
      EXPECT_EQ(*ids, entry["ids"].get<Ids>());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Templates, ChatTemplateGoldenTest,
                         ::testing::Values("llada", "llada-no-system", "llama3", "qwen2-dream"),
                         [](const auto& style) {
                           std::string name = style.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace sparsed::testing
