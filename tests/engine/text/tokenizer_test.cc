// SPDX-License-Identifier: Apache-2.0
#include "engine/text/tokenizer.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/base/concat.h"
#include "tests/engine/text/text_fixtures.h"
#include "tests/support/matchers.h"

namespace sparsed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// A byte-level tokenizer whose vocabulary is `vocabulary` and whose added tokens are `added`.
std::string SmallTokenizerJson(const nlohmann::json& vocabulary, const nlohmann::json& added) {
  const nlohmann::json byte_level = {{"type", "ByteLevel"},
                                     {"add_prefix_space", false},
                                     {"trim_offsets", true},
                                     {"use_regex", false}};
  return nlohmann::json{
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level},
      {"post_processor", nullptr},
      {"decoder", byte_level},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}}
      .dump();
}

nlohmann::json AddedToken(int64_t id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

TEST(TokenizerTest, DemoModelRoundTrips) {
  const auto tokenizer = LoadDemoTokenizer();
  EXPECT_EQ(tokenizer->vocabulary_size(), 4096);
  EXPECT_EQ(tokenizer->TokenId("<|mdm_mask|>"), 2);
  EXPECT_TRUE(tokenizer->IsSpecial(2));
  const std::string text = "Once upon a time, a small dog found 12 red balls.\n\tCaf\u00E9 \u65E5!";
  ASSERT_OK_AND_ASSIGN(const Ids ids, tokenizer->Encode(text, ControlTokens::kAsText));
  EXPECT_LT(ids.size(), text.size() / 2);
  EXPECT_EQ(*tokenizer->Decode(ids, true), text);
  std::string bytes;
  for (int32_t id : ids) bytes += tokenizer->TokenBytes(id);
  EXPECT_EQ(bytes, text);
}

TEST(TokenizerTest, ControlTokensInPlainTextStayText) {
  const auto tokenizer = LoadDemoTokenizer();
  const std::string text = "a<|eot_id|><|mdm_mask|> b";
  ASSERT_OK_AND_ASSIGN(const Ids plain, tokenizer->Encode(text, ControlTokens::kAsText));
  for (int32_t id : plain) EXPECT_FALSE(tokenizer->IsSpecial(id)) << id;
  EXPECT_EQ(*tokenizer->Decode(plain, true), text);
  ASSERT_OK_AND_ASSIGN(const Ids control, tokenizer->Encode(text, ControlTokens::kRecognise));
  EXPECT_EQ(control[1], tokenizer->TokenId("<|eot_id|>"));
  EXPECT_EQ(control[2], tokenizer->TokenId("<|mdm_mask|>"));
}

TEST(TokenizerTest, RenderedTextHidesControlTokensThatTouchAPlainSpan) {
  const auto tokenizer = LoadDemoTokenizer();
  const int32_t eot = *tokenizer->TokenId("<|eot_id|>");
  const std::string text = "a<|eot_id|>b<|eot_id|>";  // the tokens are [1, 11) and [12, 22)
  const auto count = [&](std::vector<Tokenizer::PlainSpan> plain) {
    const auto ids = tokenizer->EncodeRendered(text, plain);
    EXPECT_THAT(ids, IsOk());
    EXPECT_EQ(*tokenizer->Decode(*ids, false), text);
    return std::count(ids->begin(), ids->end(), eot);
  };
  EXPECT_EQ(count({}), 2);
  EXPECT_EQ(count({{0, 1}, {11, 12}}), 2);
  EXPECT_EQ(count({{1, 2}}), 1);
  EXPECT_EQ(count({{10, 12}}), 1);
  EXPECT_EQ(count({{0, 22}}), 0);
  EXPECT_EQ(count({{1, 2}, {21, 22}}), 0);
}

TEST(TokenizerTest, BadPlainSpansAreRefused) {
  const auto tokenizer = LoadDemoTokenizer();
  using Spans = std::vector<Tokenizer::PlainSpan>;
  for (const Spans& spans : {Spans{{0, 4}}, Spans{{2, 1}}, Spans{{1, 1}}, Spans{{1, 2}, {0, 1}}}) {
    EXPECT_THAT(tokenizer->EncodeRendered("abc", spans), StatusIs(kInvalid, HasSubstr("span")));
  }
}

TEST(TokenizerTest, TextThatIsNotUtf8NamesTheByte) {
  const auto tokenizer = LoadDemoTokenizer();
  EXPECT_THAT(tokenizer->Encode("abc\xFF", ControlTokens::kAsText),
              StatusIs(kInvalid, HasSubstr("byte 3")));
  EXPECT_THAT(tokenizer->EncodeRendered("\xC3", {}), StatusIs(kInvalid, HasSubstr("byte 0")));
  EXPECT_EQ(tokenizer->TokenId("\xFF"), std::nullopt);
}

TEST(TokenizerTest, EmptyTextAndNulBytesAreText) {
  const auto tokenizer = LoadDemoTokenizer();
  EXPECT_EQ(*tokenizer->Encode("", ControlTokens::kAsText), Ids());
  EXPECT_EQ(*tokenizer->EncodeRendered("", {}), Ids());
  EXPECT_EQ(*tokenizer->Decode({}, true), "");
  const std::string text("a\0b\0", 4);
  ASSERT_OK_AND_ASSIGN(const Ids ids, tokenizer->Encode(text, ControlTokens::kAsText));
  EXPECT_EQ(*tokenizer->Decode(ids, true), text);
}

TEST(TokenizerTest, IdsOutsideTheVocabularyAreRefused) {
  const auto tokenizer = LoadDemoTokenizer();
  EXPECT_THAT(tokenizer->Decode({7, 4096}, true),
              StatusIs(kInvalid, AllOf(HasSubstr("ids[1] is 4096"), HasSubstr("0..4095"))));
  EXPECT_THAT(tokenizer->Decode({-1}, true), StatusIs(kInvalid, HasSubstr("ids[0] is -1")));
  EXPECT_EQ(tokenizer->TokenBytes(-1), "");
  EXPECT_EQ(tokenizer->TokenBytes(4096), "");
  EXPECT_FALSE(tokenizer->IsSpecial(-1));
  EXPECT_FALSE(tokenizer->IsSpecial(4096));
}

TEST(TokenizerTest, AddedTokensAreTheirTextAndHolesAreEmpty) {
  const TestFolder folder;
  // "é" is also a character of the byte-level alphabet: as an added token it still means itself.
  const auto added = {AddedToken(3, "\u00E9 \u65E5", false), AddedToken(4, "<|end|>", true)};
  const std::string path = folder.Write(
      "tokenizer.json", SmallTokenizerJson({{"a", 0}, {"\u0120", 1}, {"b", 9}}, added));
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::Load(path));
  EXPECT_EQ(tokenizer->vocabulary_size(), 10);
  EXPECT_EQ(tokenizer->TokenBytes(1), " ");
  EXPECT_EQ(tokenizer->TokenBytes(2), "");
  EXPECT_EQ(tokenizer->TokenBytes(3), "\u00E9 \u65E5");
  EXPECT_EQ(tokenizer->TokenBytes(4), "");
  EXPECT_EQ(tokenizer->TokenBytes(9), "b");
  EXPECT_EQ(*tokenizer->Decode({0, 2, 8, 9}, false), "ab");
  EXPECT_EQ(*tokenizer->Encode("a\u00E9 \u65E5<|end|>", ControlTokens::kRecognise), Ids({0, 3, 4}));
}

TEST(TokenizerTest, TruncationOfTheFileIsIgnored) {
  const TestFolder folder;
  nlohmann::json json = ReadJson(DemoModelFile("tokenizer.json"));
  json["truncation"] = {
      {"direction", "Right"}, {"max_length", 2}, {"strategy", "LongestFirst"}, {"stride", 0}};
  ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                       Tokenizer::Load(folder.Write("tokenizer.json", json.dump())));
  const std::string text = "a long sentence that has more than two tokens";
  EXPECT_EQ(*tokenizer->Encode(text, ControlTokens::kAsText),
            *LoadDemoTokenizer()->Encode(text, ControlTokens::kAsText));
}

TEST(TokenizerTest, MissingFileIsNotFound) {
  EXPECT_THAT(Tokenizer::Load("/nowhere/tokenizer.json"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere/tokenizer.json")));
}

TEST(TokenizerTest, FilesThatAreNoTokenizerNameThePath) {
  const TestFolder folder;
  EXPECT_THAT(Tokenizer::Load(folder.path()), StatusIs(kInvalid, HasSubstr(folder.path())));
  nlohmann::json word_piece = ReadJson(DemoModelFile("tokenizer.json"));
  word_piece["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  const auto huge_id = {AddedToken(4'000'000'000, "<|far|>", true)};
  const std::string contents[] = {
      "",
      "{",
      "[]",
      "null",
      "{\"model\": 3}",
      "{\"version\": \"1.0\"}",
      "\xFF\xFE",
      Repeat("[", 200'000),
      Repeat("{\"model\":", 200'000),
      std::string(1000, '\0'),
      ReadJson(DemoModelFile("tokenizer.json")).dump().substr(0, 50'000),
      word_piece.dump(),
      SmallTokenizerJson(nlohmann::json::object(), nlohmann::json::array()),
      SmallTokenizerJson({{"a", 0}, {"b", 4'000'000'000}}, nlohmann::json::array()),
      SmallTokenizerJson({{"a", -1}}, nlohmann::json::array()),
  };
  for (const std::string& content : contents) {
    SCOPED_TRACE(content.substr(0, 80));
    const std::string path = folder.Write("tokenizer.json", content);
    EXPECT_THAT(Tokenizer::Load(path), StatusIs(kInvalid, HasSubstr(path)));
  }
  // The library numbers added tokens itself, so this either loads or is refused.
  const auto far =
      Tokenizer::Load(folder.Write("tokenizer.json", SmallTokenizerJson({{"a", 0}}, huge_id)));
  if (far.ok()) {
    EXPECT_LE((*far)->vocabulary_size(), 2);
  }
}

TEST(TokenizerTest, LongRunsOfOneCharacterStayFast) {
  const auto tokenizer = LoadDemoTokenizer();
  const auto start = std::chrono::steady_clock::now();
  for (const char* unit : {" ", "a", "\n", "\u65E5", "<|", "'"}) {
    const std::string text = Repeat(unit, 200'000);
    ASSERT_OK_AND_ASSIGN(const Ids ids, tokenizer->Encode(text, ControlTokens::kAsText));
    EXPECT_EQ(*tokenizer->Decode(ids, true), text);
  }
  // About a second; quadratic behaviour would take minutes.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(TokenizerTest, ThreadsShareOneTokenizer) {
  const auto tokenizer = LoadDemoTokenizer();
  const auto text_of = [](int i) { return Concat("story ", i, ": <|eot_id|> caf\u00E9"); };
  std::vector<Ids> expected;
  for (int i = 0; i < 50; ++i) {
    expected.push_back(*tokenizer->Encode(text_of(i), ControlTokens::kAsText));
  }
  std::vector<int> wrong(8, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 20; ++round) {
        for (int i = 0; i < 50; ++i) {
          const auto ids = tokenizer->Encode(text_of(i), ControlTokens::kAsText);
          const bool same = ids.ok() && *ids == expected[static_cast<size_t>(i)] &&
                            *tokenizer->Decode(*ids, true) == text_of(i);
          wrong[t] += same ? 0 : 1;
        }
        wrong[t] += tokenizer->Encode("\xFF", ControlTokens::kAsText).ok() ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(8, 0));
}

}  // namespace
}  // namespace sparsed::testing
