// SPDX-License-Identifier: Apache-2.0
// How calls end other than well: full queue, cancel, hang-up, deadline, a name taken twice.
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/rpc/status_details.h"
#include "tests/server/rpc/test_server.h"
#include "tests/support/exposition.h"
#include "tests/support/matchers.h"

namespace sparsed::testing {
namespace {

using ::testing::HasSubstr;

// Holds one running request at the start of its first step.
class EndingTest : public ::testing::Test {
 protected:
  EndingTest() : server_({.engine = {.max_rows = 1}, .max_queue = 1}) {
    server_.engine().gate().Close();
  }

  std::future<grpc::Status> Start(v1::GenerateRequest request, grpc::ClientContext* context) {
    return std::async(std::launch::async, [this, request = std::move(request), context] {
      v1::GenerateResponse response;
      return server_.stub().Generate(context, request, &response);
    });
  }

  std::future<grpc::Status> StartHeld(const std::string& id, grpc::ClientContext* context,
                                      uint32_t tokens = 32) {
    v1::GenerateRequest request = SparseRequest(tokens);
    request.mutable_decoding()->set_steps(tokens);
    request.set_request_id(id);
    auto started = Start(std::move(request), context);
    server_.engine().gate().WaitUntilHeld();
    EXPECT_EQ(server_.engine().load().rows, 1);
    EXPECT_EQ(server_.engine().load().mask_bytes_used, 1000);
    return started;
  }

  bool Cancel(const std::string& id) {
    grpc::ClientContext context;
    v1::CancelRequest request;
    request.set_request_id(id);
    v1::CancelResponse response;
    EXPECT_TRUE(server_.stub().Cancel(&context, request, &response).ok());
    return response.cancelled();
  }

  static constexpr uint32_t kManySteps = 2048;

  void WaitForQueued(int count) {
    while (server_.admission().load().queued != count) std::this_thread::yield();
  }

  // A hang-up needs a moment to reach the server, which steps on meanwhile.
  void StepUntilIdle() {
    while (server_.admission().load().running != 0) {
      server_.engine().gate().LetOneThrough();
      std::this_thread::yield();
    }
  }

  double Ended(const std::string& code) {
    auto metrics = Exposition::Parse(server_.metrics().Expose());
    return metrics.ok() ? metrics->Value("sparsed_requests_total", "code", code) : -1;
  }

  TestServer server_;
};

TEST_F(EndingTest, AFullQueueSaysWhenToComeBack) {
  grpc::ClientContext first_context;
  auto first = StartHeld("first", &first_context);
  grpc::ClientContext second_context;
  auto second = Start(StoryRequest(), &second_context);
  WaitForQueued(1);
  grpc::ClientContext context;
  v1::GenerateResponse response;
  const grpc::Status status = server_.stub().Generate(&context, StoryRequest(), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("1 of 1"));
  const auto retry = FindDetail<google::rpc::RetryInfo>(status);
  ASSERT_TRUE(retry);
  EXPECT_GE(retry->retry_delay().seconds(), 1);
  server_.engine().gate().Open();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
  server_.ExpectAllFreed();
}

TEST_F(EndingTest, CancelFreesRowAndMaskWithinOneStep) {
  grpc::ClientContext context;
  auto running = StartHeld("long", &context);
  EXPECT_TRUE(Cancel("long"));
  EXPECT_TRUE(Cancel("long"));  // still promised until it is over
  server_.engine().gate().LetOneThrough();
  EXPECT_EQ(running.get().error_code(), grpc::StatusCode::CANCELLED);
  server_.ExpectAllFreed();
  EXPECT_EQ(server_.engine().gate().entered(), 1);
  EXPECT_FALSE(Cancel("long"));
  EXPECT_EQ(Ended("CANCELLED"), 1);
}

TEST_F(EndingTest, CancelReachesTheQueue) {
  grpc::ClientContext first_context;
  auto first = StartHeld("first", &first_context);
  v1::GenerateRequest request = StoryRequest();
  request.set_request_id("waiting");
  grpc::ClientContext second_context;
  auto second = Start(request, &second_context);
  WaitForQueued(1);
  EXPECT_TRUE(Cancel("waiting"));
  server_.engine().gate().Open();
  EXPECT_EQ(second.get().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(first.get().ok());
  server_.ExpectAllFreed();
}

TEST_F(EndingTest, CancelWithoutANameIsRefused) {
  grpc::ClientContext context;
  v1::CancelResponse response;
  const grpc::Status status = server_.stub().Cancel(&context, v1::CancelRequest(), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(BadField(status), "request_id");
  EXPECT_FALSE(Cancel("nobody"));
}

TEST_F(EndingTest, AUnaryHangUpFreesRowAndMask) {
  grpc::ClientContext context;
  auto running = StartHeld("gone", &context, kManySteps);
  context.TryCancel();
  EXPECT_EQ(running.get().error_code(), grpc::StatusCode::CANCELLED);
  StepUntilIdle();
  server_.ExpectAllFreed();
  EXPECT_LT(server_.engine().gate().entered(), static_cast<int>(kManySteps));
  EXPECT_EQ(Ended("CANCELLED"), 1);
}

TEST_F(EndingTest, AStreamHangUpFreesRowAndMask) {
  v1::GenerateRequest request = SparseRequest(kManySteps);
  request.mutable_decoding()->set_steps(kManySteps);
  grpc::ClientContext context;
  auto reader = server_.stub().GenerateStream(&context, request);
  server_.engine().gate().WaitUntilHeld();
  v1::GenerateEvent event;
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_TRUE(event.has_started());
  context.TryCancel();
  while (reader->Read(&event)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  StepUntilIdle();
  server_.ExpectAllFreed();
  EXPECT_EQ(Ended("CANCELLED"), 1);
}

TEST_F(EndingTest, TheDeadlineEndsARunningRequest) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
  auto running = StartHeld("late", &context);
  server_.clock().Advance(std::chrono::minutes(2));
  server_.engine().gate().LetOneThrough();
  const grpc::Status status = running.get();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("1 of 32"));  // said by the server
  server_.ExpectAllFreed();
  EXPECT_EQ(server_.engine().gate().entered(), 1);
  EXPECT_EQ(Ended("DEADLINE_EXCEEDED"), 1);
}

TEST_F(EndingTest, ANameInUseIsRefused) {
  grpc::ClientContext first_context;
  auto first = StartHeld("same", &first_context);
  v1::GenerateRequest request = StoryRequest();
  request.set_request_id("same");
  grpc::ClientContext context;
  v1::GenerateResponse response;
  EXPECT_EQ(server_.stub().Generate(&context, request, &response).error_code(),
            grpc::StatusCode::ALREADY_EXISTS);
  server_.engine().gate().Open();
  EXPECT_TRUE(first.get().ok());
  grpc::ClientContext again_context;
  EXPECT_TRUE(server_.stub().Generate(&again_context, request, &response).ok());
  server_.ExpectAllFreed();
}

}  // namespace
}  // namespace sparsed::testing
