// SPDX-License-Identifier: Apache-2.0
// gMock matchers for absl::Status and absl::StatusOr; Debian's Abseil ships none.
//   EXPECT_THAT(status, IsOk());
//   EXPECT_THAT(Load(path), StatusIs(absl::StatusCode::kNotFound, HasSubstr("config.json")));
#pragma once

#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sparsed::testing {

inline const absl::Status& GetStatus(const absl::Status& status) { return status; }
template <class T>
const absl::Status& GetStatus(const absl::StatusOr<T>& result) {
  return result.status();
}

MATCHER(IsOk, "is OK") {
  *result_listener << GetStatus(arg).ToString();
  return GetStatus(arg).ok();
}

MATCHER_P2(StatusIs, code, message, "") {
  const absl::Status& status = GetStatus(arg);
  *result_listener << status.ToString();
  return status.code() == code &&
         ::testing::ExplainMatchResult(message, std::string(status.message()), result_listener);
}

// The value of a StatusOr, or a failed test that prints the status.
#define ASSERT_OK_AND_ASSIGN(declaration, expression) \
  SPARSED_ASSERT_OK_AND_ASSIGN(SPARSED_TEST_CONCAT(status_or_, __LINE__), declaration, expression)
#define SPARSED_TEST_CONCAT_INNER(a, b) a##b
#define SPARSED_TEST_CONCAT(a, b) SPARSED_TEST_CONCAT_INNER(a, b)
#define SPARSED_ASSERT_OK_AND_ASSIGN(name, declaration, expression) \
  auto name = (expression);                                         \
  ASSERT_TRUE(name.ok()) << name.status();                          \
  declaration = *std::move(name)

}  // namespace sparsed::testing
