// SPDX-License-Identifier: Apache-2.0
// TestServer: the gRPC services over a real socket, with a DemoEngine and the demo's tokenizer.
//   TestServer server({.max_queue = 1});
//   grpc::ClientContext context;
//   grpc::Status status = server.stub().Generate(&context, request, &response);
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include "server/rpc/grpc_server.h"
#include "server/step_loop.h"
#include "tests/server/rpc/demo_engine.h"
#include "tests/support/fake_clock.h"

namespace sparsed::testing {

inline constexpr std::chrono::seconds kTestLimit{20};

struct TestServerOptions {
  FakeEngineOptions engine = {};
  int32_t max_queue = 8;
  int32_t max_message_mib = 16;
  bool serving = true;
};

class TestServer {
 public:
  explicit TestServer(const TestServerOptions& options = {})
      : engine_(options.engine),
        admission_({.max_queued = options.max_queue}, &clock_, &metrics_),
        loop_({}, &engine_, &admission_, &metrics_, &clock_) {
    auto model = LoadServedModel(DemoModelDir(), engine_.model(), "dense");
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    auto grpc = GrpcServer::Start({.max_message_mib = options.max_message_mib});
    EXPECT_TRUE(grpc.ok()) << grpc.status();
    grpc_ = *std::move(grpc);
    loop_.Start();
    if (options.serving) StartServing();
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(grpc_->port()),
                                   grpc::InsecureChannelCredentials());
    stub_ = v1::GenerationService::NewStub(channel_);
  }

  ~TestServer() {
    engine_.gate().Open();
    loop_.Stop();
  }

  void StartServing() {
    grpc_->StartServing({.engine = &engine_,
                         .model = &model_,
                         .admission = &admission_,
                         .metrics = &metrics_,
                         .clock = &clock_});
  }

  v1::GenerationService::Stub& stub() { return *stub_; }
  const std::shared_ptr<grpc::Channel>& channel() { return channel_; }
  DemoEngine& engine() { return engine_; }
  const ServedModel& model() { return model_; }
  Admission& admission() { return admission_; }
  Metrics& metrics() { return metrics_; }
  FakeClock& clock() { return clock_; }
  GrpcServer& grpc() { return *grpc_; }

  // Every call is over, on the server's side too.
  void ExpectAllFreed() {
    EXPECT_TRUE(grpc_->live_calls().WaitForNone(kTestLimit));
    EXPECT_EQ(engine_.load().rows, 0);
    EXPECT_EQ(engine_.load().mask_bytes_used, 0);
    EXPECT_EQ(admission_.load().queued, 0);
    EXPECT_EQ(admission_.load().running, 0);
  }

 private:
  FakeClock clock_;
  Metrics metrics_;
  DemoEngine engine_;
  Admission admission_;
  StepLoop loop_;
  ServedModel model_;
  std::unique_ptr<GrpcServer> grpc_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::GenerationService::Stub> stub_;
};

// A request for `tokens` tokens of a story.
inline v1::GenerateRequest StoryRequest(uint32_t tokens = 32) {
  v1::GenerateRequest request;
  request.set_prompt("Once upon a time");
  request.mutable_decoding()->set_gen_length(tokens);
  return request;
}

// As StoryRequest, with sparse attention, so that its row holds a mask.
inline v1::GenerateRequest SparseRequest(uint32_t tokens = 32) {
  v1::GenerateRequest request = StoryRequest(tokens);
  request.mutable_attention()->set_preset("sparsed");
  return request;
}

}  // namespace sparsed::testing
