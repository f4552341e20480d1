// SPDX-License-Identifier: Apache-2.0
#include "engine/text/chat_template.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/base/concat.h"
#include "tests/engine/text/text_fixtures.h"
#include "tests/support/matchers.h"

namespace sparsed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

absl::StatusOr<std::string> Render(std::string_view source,
                                   const std::vector<ChatMessage>& messages = {},
                                   bool add_generation_prompt = false) {
  auto chat = ChatTemplate::FromSource(source, {{"bos_token", "<s>"}});
  if (!chat.ok()) return chat.status();
  return (*chat)->Render(messages, add_generation_prompt);
}

TEST(ChatTemplateTest, DemoModelTemplateGivesPromptIds) {
  const auto tokenizer = LoadDemoTokenizer();
  ASSERT_OK_AND_ASSIGN(const auto chat, ChatTemplate::Load(DemoModelFile("tokenizer_config.json")));
  const std::vector<ChatMessage> messages = {{"user", " Tell me a story. "}};
  ASSERT_OK_AND_ASSIGN(const std::string text, chat->Render(messages, true));
  EXPECT_EQ(text,
            "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nTell me a story.<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  ASSERT_OK_AND_ASSIGN(const auto ids, chat->Encode(messages, true, *tokenizer));
  EXPECT_EQ(ids, *tokenizer->Encode(text, ControlTokens::kRecognise));
  EXPECT_EQ(ids.front(), 0);
}

TEST(ChatTemplateTest, RendersAsHuggingFaceDoes) {
  const struct {
    const char *source, *text;
  } cases[] = {
      {"{{ bos_token }}{{ eos_token }}|", "<s>|"},  // an unknown name is empty
      {"{% if tools is none %}no tools{% endif %}", "no tools"},
      {"{% if documents is none %}no documents{% endif %}", "no documents"},
      {"a\n  {% if true %}\nb\n  {% endif %}\nc\n", "a\nb\nc"},  // trim_blocks, lstrip_blocks
      {"{{ '<b> & \"q\"' }}", "<b> & \"q\""},
      {"{{ 'a,b'.split(',')[1].upper().strip() }}", "B"},
      {"{{ {'b': [1, 'é<'], 'a': none} | tojson }}", "{\"b\": [1, \"é<\"], \"a\": null}"},
      {"{{ {'b': [1]} | tojson(indent=2) }}", "{\n  \"b\": [\n    1\n  ]\n}"},
      {"{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"},
      {"x\n{%- generation %}\ny{% endgeneration -%}\n z", "xyz"},
      {"{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m(1) }}", "[1]"},
  };
  for (const auto& [source, text] : cases) {
    SCOPED_TRACE(source);
    ASSERT_OK_AND_ASSIGN(const std::string rendered, Render(source));
    EXPECT_EQ(rendered, text);
  }
}

TEST(ChatTemplateTest, StrftimeNowGivesTheDate) {
  ASSERT_OK_AND_ASSIGN(const std::string date, Render("{{ strftime_now('%Y-%m-%d') }}"));
  EXPECT_THAT(date, MatchesRegex("20[0-9][0-9]-[01][0-9]-[0-3][0-9]"));
}

TEST(ChatTemplateTest, TextsAreNotTemplates) {
  std::string content = "{{ bos_token }} {% raw %} \u00E9";
  content.push_back('\0');
  ASSERT_OK_AND_ASSIGN(const std::string text,
                       Render("{{ messages[0].content }}", {{"user", content}}));
  EXPECT_EQ(text, content);
}

TEST(ChatTemplateTest, RefusalCarriesTheTemplatesWords) {
  EXPECT_THAT(Render("{{ raise_exception('roles must alternate') }}"),
              StatusIs(kInvalid, HasSubstr("roles must alternate")));
  EXPECT_THAT(Render("{{ messages[3].content.x }}"), StatusIs(kInvalid, HasSubstr("line 1")));
}

TEST(ChatTemplateTest, HostileTemplatesEnd) {
  const char* sources[] = {
      "{% for i in range(10000) %}{% for j in range(10000) %}x{% endfor %}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{{ 'a' * 100000000000 }}",
      "{% set x = 'a' * 1000000 %}{% for i in range(10000) %}{{ x }}{% endfor %}",
      "{{ range(100000000000) | list }}",
  };
  for (const char* source : sources) {
    SCOPED_TRACE(source);
    EXPECT_THAT(Render(source), StatusIs(kInvalid, HasSubstr("chat template")));
  }
}

TEST(ChatTemplateTest, SyntaxErrorsNameTheLine) {
  const std::string sources[] = {"a\n{% if %}", "\n{{ x", "\n{% generation %}",
                                 Concat("\n{{ ", Repeat("(", 100'000), " }}")};
  for (const std::string& source : sources) {
    SCOPED_TRACE(source.substr(0, 40));
    EXPECT_THAT(ChatTemplate::FromSource(source, {}), StatusIs(kInvalid, HasSubstr("line 2")));
  }
  EXPECT_THAT(ChatTemplate::FromSource("\xFF", {}), StatusIs(kInvalid, HasSubstr("byte 0")));
}

TEST(ChatTemplateTest, MessagesThatAreNotUtf8NameFieldAndByte) {
  EXPECT_THAT(Render("", {{"user", "a"}, {"user", "ab\xFF"}}),
              StatusIs(kInvalid, AllOf(HasSubstr("messages[1].content"), HasSubstr("byte 2"))));
  const auto tokenizer = LoadDemoTokenizer();
  ASSERT_OK_AND_ASSIGN(const auto chat, ChatTemplate::FromSource("", {}));
  EXPECT_THAT(chat->Encode({ChatMessage{"\xC3", ""}}, true, *tokenizer),
              StatusIs(kInvalid, AllOf(HasSubstr("messages[0].role"), HasSubstr("byte 0"))));
}

TEST(ChatTemplateLoadTest, ReadsTheConfigsForms) {
  const TestFolder folder;
  const std::vector<std::string> configs = {
      R"({"chat_template": "{{ bos_token }}!", "bos_token": "<s>"})",
      R"({"chat_template": "{{ bos_token }}!", "bos_token": {"content": "<s>", "special": true}})",
      R"({"chat_template": [{"name": "tool_use", "template": "no"},
                            {"name": "default", "template": "{{ bos_token }}!"}],
          "bos_token": "<s>", "eos_token": null})"};
  for (const std::string& config : configs) {
    SCOPED_TRACE(config);
    ASSERT_OK_AND_ASSIGN(const auto chat,
                         ChatTemplate::Load(folder.Write("tokenizer_config.json", config)));
    EXPECT_EQ(*chat->Render({}, false), "<s>!");
  }
}

TEST(ChatTemplateLoadTest, ReadsTheFileBesideTheConfig) {
  const TestFolder folder;
  const std::string path = folder.Write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  EXPECT_THAT(ChatTemplate::Load(path),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr(path), HasSubstr("chat_template.jinja"))));
  const std::string jinja = folder.Write("chat_template.jinja", "{{ bos_token }}?");
  ASSERT_OK_AND_ASSIGN(const auto chat, ChatTemplate::Load(path));
  EXPECT_EQ(*chat->Render({}, false), "<s>?");
  folder.Write("chat_template.jinja", "{{ bos_token ");
  EXPECT_THAT(ChatTemplate::Load(path), StatusIs(kInvalid, HasSubstr(jinja)));
}

TEST(ChatTemplateLoadTest, BadFilesNameThePath) {
  const TestFolder folder;
  EXPECT_THAT(ChatTemplate::Load("/nowhere/tokenizer_config.json"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere/tokenizer_config.json")));
  EXPECT_THAT(ChatTemplate::Load(folder.path()), StatusIs(kInvalid, HasSubstr(folder.path())));
  const std::string contents[] = {"",
                                  "{",
                                  "[1]",
                                  Repeat("[", 200'000),
                                  "{\"chat_template\": \"\xFF\"}",
                                  "{\"chat_template\": \"{{ x\"}"};
  for (const std::string& content : contents) {
    SCOPED_TRACE(content.substr(0, 40));
    const std::string path = folder.Write("tokenizer_config.json", content);
    EXPECT_THAT(ChatTemplate::Load(path), StatusIs(kInvalid, HasSubstr(path)));
  }
  for (const char* content :
       {"{\"chat_template\": 3}", "{\"chat_template\": [3, {\"name\": 1}]}"}) {
    const std::string path = folder.Write("tokenizer_config.json", content);
    EXPECT_THAT(ChatTemplate::Load(path), StatusIs(absl::StatusCode::kNotFound, HasSubstr(path)));
  }
}

}  // namespace
}  // namespace sparsed::testing
