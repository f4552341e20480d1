// SPDX-License-Identifier: Apache-2.0
#include "engine/model/json_file.h"

#include <sys/stat.h>

#include "tests/engine/model/model_files.h"
#include "tests/support/matchers.h"

namespace sparsed {
namespace {

using ::sparsed::testing::IsOk;
using ::sparsed::testing::StatusIs;
using ::sparsed::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr JsonLimits kLimits = {.bytes = 1000, .depth = 3, .values = 10};
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

absl::StatusOr<nlohmann::json> Parse(std::string_view text) {
  return ParseJsonObject(text, "x.json", kLimits);
}

TEST(JsonFileTest, ReadsAnObject) {
  ASSERT_OK_AND_ASSIGN(const nlohmann::json json, Parse(R"( {"a": [1, {"b": "ü"}]} )"));
  EXPECT_EQ(json["a"][1]["b"], "ü");
}

TEST(JsonFileTest, RefusesWhatIsNotAnObject) {
  EXPECT_THAT(Parse("[1]"), StatusIs(kInvalid, "x.json: is a JSON array: must be an object"));
  EXPECT_THAT(Parse("null"), StatusIs(kInvalid, HasSubstr("is a JSON null")));
  EXPECT_THAT(Parse(""), StatusIs(kInvalid, "x.json: is empty"));
}

TEST(JsonFileTest, SyntaxErrorsNameThePlaceAndTheFieldBefore) {
  EXPECT_THAT(Parse("{\"a\": 1,\n \"theta\": NaN}"),
              StatusIs(kInvalid, AllOf(HasSubstr("x.json: theta: "), HasSubstr("line 2"))));
  EXPECT_THAT(Parse("{\"theta\": 1e999}"),
              StatusIs(kInvalid, AllOf(HasSubstr("theta: "), HasSubstr("1e999"))));
  EXPECT_THAT(Parse("{\"a\": 1} x"), StatusIs(kInvalid, HasSubstr("x.json: ")));
  EXPECT_THAT(Parse("{\"a\": 1"), StatusIs(kInvalid, HasSubstr("x.json: ")));
}

TEST(JsonFileTest, RefusesBytesThatAreNotUtf8) {
  EXPECT_THAT(Parse("{\"a\": \"\xff\xfe\"}"), StatusIs(kInvalid, HasSubstr("UTF-8")));
}

TEST(JsonFileTest, RefusesNulThatHidesWhatFollows) {
  EXPECT_THAT(Parse(std::string_view("{\"a\": 1}\0garbage", 16)),
              StatusIs(kInvalid, HasSubstr("NUL byte at offset 8")));
}

TEST(JsonFileTest, RefusesANameTwiceInOneObjectOnly) {
  EXPECT_THAT(Parse(R"({"a": {"b": 1}, "b": 2})"), IsOk());
  EXPECT_THAT(Parse(R"({"a": {"b": 1, "b": 2}})"), StatusIs(kInvalid, "x.json: b: is given twice"));
}

TEST(JsonFileTest, DepthIsLimited) {
  EXPECT_THAT(Parse(R"({"a": [[1]]})"), IsOk());
  EXPECT_THAT(Parse(R"({"a": [[[1]]]})"), StatusIs(kInvalid, HasSubstr("nested deeper than 3")));
  // Deep enough to overflow a recursive parser's stack.
  const std::string deep = "{\"a\": " + std::string(900'000, '[');
  EXPECT_THAT(Parse(deep), StatusIs(kInvalid, HasSubstr("nested deeper than 3")));
}

TEST(JsonFileTest, NumberOfValuesIsLimited) {
  EXPECT_THAT(Parse(R"({"a": [1,2,3,4,5,6,7,8]})"), IsOk());
  EXPECT_THAT(Parse(R"({"a": [1,2,3,4,5,6,7,8,9]})"),
              StatusIs(kInvalid, HasSubstr("more than 10 JSON values")));
}

TEST(JsonFileTest, FileSizeIsLimited) {
  const TempDir dir;
  const std::string path = dir.Write("a.json", std::string(1001, ' '));
  EXPECT_THAT(ReadJsonObject(path, kLimits),
              StatusIs(kInvalid, path + ": size is 1001 bytes: must be at most 1000"));
}

TEST(JsonFileTest, MissingFileIsNotFound) {
  EXPECT_THAT(ReadJsonObject("/nowhere/a.json", kLimits),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere/a.json")));
}

TEST(JsonFileTest, RefusesFoldersAndPipesWithoutWaiting) {
  const TempDir dir;
  ASSERT_EQ(mkfifo(dir.File("pipe").c_str(), 0600), 0);
  EXPECT_THAT(ReadJsonObject(dir.File("pipe"), kLimits),
              StatusIs(kInvalid, HasSubstr("not a regular file")));
  EXPECT_THAT(ReadJsonObject(dir.path(), kLimits),
              StatusIs(kInvalid, HasSubstr("not a regular file")));
}

TEST(JsonFileTest, ExcerptIsOnePrintableLine) {
  EXPECT_EQ(Excerpt("plain \"text\""), "plain \"text\"");
  EXPECT_EQ(Excerpt("a\nb\x1b\xff"), "a\\nb\\x1b\\xff");
  EXPECT_EQ(Excerpt(std::string(500, 'a')), std::string(160, 'a') + "...");
}

}  // namespace
}  // namespace sparsed
