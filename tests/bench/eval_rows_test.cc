// SPDX-License-Identifier: Apache-2.0
#include "bench/eval_rows.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/matchers.h"

namespace sparsed {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

void WriteTask(const std::string& text) {
  std::ofstream(::testing::TempDir() + "/task.jsonl") << text;
}

TEST(EvalRowsTest, RowsAreCountedWithinTheirLength) {
  WriteTask(R"({"length": 1024, "prompt": "a", "answer": "1"})"
            "\n"
            R"({"length": 2048, "prompt": "b", "answer": "2"})"
            "\n"
            R"({"length": 1024, "prompt": "c", "answer": "3"})"
            "\n");
  const auto rows = LoadEvalRows(::testing::TempDir(), "task");
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 3U);
  EXPECT_EQ((*rows)[1].index, 0);
  EXPECT_EQ((*rows)[2].index, 1);
  EXPECT_EQ((*rows)[2].task, "task");
  EXPECT_EQ((*rows)[2].prompt, "c");
  EXPECT_EQ((*rows)[2].answer, "3");
}

TEST(EvalRowsTest, ErrorsNameFileAndLine) {
  WriteTask("{\"length\": 1024, \"prompt\": \"a\", \"answer\": \"1\"}\n{\"length\": 1024}\n");
  EXPECT_THAT(LoadEvalRows(::testing::TempDir(), "task").status().message(),
              HasSubstr("task.jsonl:2"));
  EXPECT_THAT(LoadEvalRows("/nonexistent", "task").status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("bench/eval/task.jsonl.xz")));
}

TEST(EvalRowsTest, OnlyWhiteSpaceAroundAnAnswerIsForgiven) {
  EXPECT_TRUE(IsCorrect(" 123\n", "123"));
  EXPECT_FALSE(IsCorrect("123.", "123"));
  EXPECT_FALSE(IsCorrect("Fox", "fox"));
  EXPECT_FALSE(IsCorrect("", "fox"));
}

}  // namespace
}  // namespace sparsed
