// SPDX-License-Identifier: Apache-2.0
#include "engine/base/invalid_field.h"

#include <gtest/gtest.h>

namespace sparsed {
namespace {

TEST(InvalidFieldTest, MessageNamesFieldValueAndLimit) {
  const absl::Status status = InvalidField("decoding.steps", 0, "must be in 1..64");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "decoding.steps is 0: must be in 1..64");
  EXPECT_EQ(InvalidFieldPath(status), "decoding.steps");
}

TEST(InvalidFieldTest, OtherStatusesHaveNoPath) {
  EXPECT_EQ(InvalidFieldPath(absl::InternalError("x")), std::nullopt);
  EXPECT_EQ(InvalidFieldPath(absl::OkStatus()), std::nullopt);
}

}  // namespace
}  // namespace sparsed
