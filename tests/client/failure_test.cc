// SPDX-License-Identifier: Apache-2.0
#include "client/failure.h"

#include <gmock/gmock.h>
#include <google/rpc/error_details.pb.h>
#include <gtest/gtest.h>

#include "tests/client/rich_status.h"

namespace sparsed::client {
namespace {

using ::sparsed::testing::WithDetail;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(FailureTest, NobodyListeningTellsHowToStartAServer) {
  const Failure failure = DescribeFailure(
      grpc::Status(grpc::StatusCode::UNAVAILABLE, "failed to connect to all addresses"), "h:1",
      /*server_reached=*/false);
  EXPECT_EQ(failure.exit_code, kExitNoServer);
  EXPECT_THAT(failure.text, HasSubstr("no server answers at h:1; start one with: sparsed --model"));
  EXPECT_THAT(failure.text, Not(HasSubstr("failed to connect")));
}

TEST(FailureTest, UnavailableFromAServerIsItsOwnWord) {
  const Failure failure = DescribeFailure(
      grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server is draining"), "h:1", true);
  EXPECT_EQ(failure.exit_code, kExitFailure);
  EXPECT_THAT(failure.text, HasSubstr("the server is draining"));
}

TEST(FailureTest, TheLastWordOfAServerThatIsGoneIsKept) {
  google::rpc::Status details;
  details.set_code(grpc::StatusCode::UNAVAILABLE);
  const grpc::Status status(grpc::StatusCode::UNAVAILABLE, "the server is shutting down",
                            details.SerializeAsString());
  EXPECT_TRUE(IsServersWord(status));
  const Failure failure = DescribeFailure(status, "h:1", /*server_reached=*/false);
  EXPECT_EQ(failure.exit_code, kExitFailure);
  EXPECT_EQ(failure.text, "the server is not available: the server is shutting down\n");
}

TEST(FailureTest, FieldViolationsAreListed) {
  google::rpc::BadRequest bad_request;
  auto* violation = bad_request.add_field_violations();
  violation->set_field("decoding.steps");
  violation->set_description("must be 1 to 64, is 65");
  violation = bad_request.add_field_violations();
  violation->set_field("attention.ratio");
  violation->set_description("must be positive");
  const Failure failure = DescribeFailure(
      WithDetail(grpc::StatusCode::INVALID_ARGUMENT, "bad", bad_request), "h:1", true);
  EXPECT_EQ(failure.exit_code, kExitRefused);
  EXPECT_THAT(failure.text, HasSubstr("  decoding.steps: must be 1 to 64, is 65\n"
                                      "  attention.ratio: must be positive\n"));
}

TEST(FailureTest, RefusalWithoutDetailsShowsTheMessage) {
  const Failure failure = DescribeFailure(
      grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "input: is missing"), "h:1", true);
  EXPECT_EQ(failure.exit_code, kExitRefused);
  EXPECT_THAT(failure.text, HasSubstr("input: is missing"));
}

TEST(FailureTest, BusyTellsWhenToRetry) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(2);
  retry.mutable_retry_delay()->set_nanos(500'000'000);
  const Failure failure = DescribeFailure(
      WithDetail(grpc::StatusCode::RESOURCE_EXHAUSTED, "the queue is full", retry), "h:1", true);
  EXPECT_EQ(failure.exit_code, kExitBusy);
  EXPECT_THAT(failure.text, HasSubstr("the queue is full"));
  EXPECT_THAT(failure.text, HasSubstr("try again in 2.5 s"));
}

TEST(FailureTest, BrokenDetailsAreIgnored) {
  const grpc::Status status(grpc::StatusCode::INVALID_ARGUMENT, "bad", "\xFF\xFF not a message");
  EXPECT_THAT(DescribeFailure(status, "h:1", true).text, HasSubstr("bad"));
  EXPECT_EQ(RichStatus(status).details_size(), 0);
}

TEST(FailureTest, TimeoutsDifferByWhetherAServerAnswered) {
  const grpc::Status status(grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded");
  EXPECT_EQ(DescribeFailure(status, "h:1", true).exit_code, kExitTimeout);
  EXPECT_EQ(DescribeFailure(status, "h:1", false).exit_code, kExitNoServer);
}

TEST(FailureTest, AnotherKindOfServerIsNamedAsSuch) {
  for (const char* message : {"", "Received http2 header with status: 404"}) {
    const Failure failure =
        DescribeFailure(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, message), "h:1", true);
    EXPECT_EQ(failure.exit_code, kExitFailure);
    EXPECT_THAT(failure.text, HasSubstr("is it sparsed?"));
    EXPECT_THAT(failure.text, Not(HasSubstr("http2")));
  }
}

}  // namespace
}  // namespace sparsed::client
