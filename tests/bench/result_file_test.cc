// SPDX-License-Identifier: Apache-2.0
#include "bench/result_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/matchers.h"

namespace sparsed {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

class ResultFileTest : public ::testing::Test {
 protected:
  ResultFileTest() { std::filesystem::remove(path_); }

  std::string Text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  const std::string path_ = ::testing::TempDir() + "/results.jsonl";
  const ResultKey key_ = {"dense", "niah", 1024, 3};
  const json conditions_ = {{"steps", 32}};
};

TEST_F(ResultFileTest, LinesAreFoundAfterReopening) {
  {
    absl::StatusOr<ResultFile> file = ResultFile::Open(path_);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_FALSE(*file->Has(key_, conditions_));
    ASSERT_THAT(file->Append(key_, conditions_, {{"correct", true}}), IsOk());
    EXPECT_TRUE(*file->Has(key_, conditions_));
  }
  absl::StatusOr<ResultFile> file = ResultFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(*file->Has(key_, conditions_));
  EXPECT_FALSE(*file->Has({"dense", "niah", 1024, 4}, conditions_));
  const json line = json::parse(Text());
  EXPECT_EQ(line["correct"], true);
  EXPECT_EQ(line["row"], 3);
}

TEST_F(ResultFileTest, OtherConditionsAreRefused) {
  absl::StatusOr<ResultFile> file = ResultFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_THAT(file->Append(key_, conditions_, json::object()), IsOk());
  EXPECT_THAT(file->Has(key_, {{"steps", 16}}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("setting dense")));
}

TEST_F(ResultFileTest, AnUnfinishedLineIsCutOffAndItsRowRunsAgain) {
  {
    absl::StatusOr<ResultFile> file = ResultFile::Open(path_);
    ASSERT_THAT(file->Append(key_, conditions_, json::object()), IsOk());
  }
  const std::string whole = Text();
  std::ofstream(path_, std::ios::app) << whole.substr(0, whole.size() / 2);
  absl::StatusOr<ResultFile> file = ResultFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(Text(), whole);
  EXPECT_TRUE(*file->Has(key_, conditions_));
}

TEST_F(ResultFileTest, FilesOfOthersAreLeftAlone) {
  std::ofstream(path_) << "{\"some\": \"log\"}\n";
  EXPECT_THAT(ResultFile::Open(path_).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("results.jsonl:1")));
  EXPECT_EQ(Text(), "{\"some\": \"log\"}\n");
  EXPECT_THAT(
      ResultFile::Open("/nonexistent/results.jsonl").status(),
      StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("/nonexistent/results.jsonl")));
}

}  // namespace
}  // namespace sparsed
