// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/invalid_field.h"
#include "server/retry_after.h"
#include "tests/server/rpc/status_details.h"

namespace sparsed {
namespace {

TEST(StatusTest, OkStaysOk) { EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok()); }

TEST(StatusTest, CodesAndMessagesAreKept) {
  const grpc::Status status = ToGrpcStatus(absl::NotFoundError("no such thing"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "no such thing");
}

TEST(StatusTest, InvalidFieldBecomesBadRequest) {
  const grpc::Status status = ToGrpcStatus(InvalidField("decoding.steps", 0, "must be positive"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto bad_request = testing::FindDetail<google::rpc::BadRequest>(status);
  ASSERT_TRUE(bad_request);
  ASSERT_EQ(bad_request->field_violations_size(), 1);
  EXPECT_EQ(bad_request->field_violations(0).field(), "decoding.steps");
  EXPECT_EQ(bad_request->field_violations(0).description(),
            "decoding.steps is 0: must be positive");
}

TEST(StatusTest, BusyErrorBecomesRetryInfo) {
  const grpc::Status status = ToGrpcStatus(BusyError("queue is full", 2.5));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto retry = testing::FindDetail<google::rpc::RetryInfo>(status);
  ASSERT_TRUE(retry);
  EXPECT_EQ(retry->retry_delay().seconds(), 2);
  EXPECT_EQ(retry->retry_delay().nanos(), 500'000'000);
}

TEST(StatusTest, EveryErrorRepeatsCodeAndMessageInItsDetails) {
  for (const absl::Status& error : {BusyError("full", 1), absl::ResourceExhaustedError("full")}) {
    google::rpc::Status details;
    ASSERT_TRUE(details.ParseFromString(ToGrpcStatus(error).error_details()));
    EXPECT_EQ(details.code(), 8);
    EXPECT_EQ(details.message(), "full");
  }
}

TEST(StatusTest, LongMessagesAreCutBetweenCharacters) {
  std::string message = "x";
  for (int i = 0; i < 2000; ++i) message += "\u00e9";
  const std::string cut = ToGrpcStatus(absl::InternalError(message)).error_message();
  EXPECT_EQ(cut.size(), 1023 + 3u);
  EXPECT_EQ(cut, message.substr(0, 1023) + "...");
}

}  // namespace
}  // namespace sparsed
