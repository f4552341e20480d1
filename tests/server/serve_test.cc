// SPDX-License-Identifier: Apache-2.0
// The life of the process: load, serve, drain, with a fake engine.
#include "server/serve.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "server/rpc/library_logs.h"
#include "tests/server/captured_log.h"
#include "tests/server/rpc/demo_engine.h"
#include "tests/server/rpc/raw_client.h"
#include "tests/server/rpc/test_server.h"
#include "tests/support/matchers.h"

namespace sparsed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ServeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_.model_dir = DemoModelDir();
    config_.listen = "127.0.0.1:0";
    config_.http_listen = "127.0.0.1:0";
    config_.port_file = ::testing::TempDir() + "/sparsed_ports_" +
                        ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove(config_.port_file);
  }

  // Serves on a thread; returns when the server takes requests.
  std::future<absl::Status> StartServing() {
    auto served = std::async(std::launch::async, [this] {
      return Serve(
          config_,
          [this](const EngineOptions& options) -> absl::StatusOr<std::unique_ptr<Engine>> {
            guard_ = options.guard;
            auto engine = std::make_unique<DemoEngine>(FakeEngineOptions(), info_);
            engine_ = engine.get();
            return engine;
          },
          &stop_);
    });
    while (!std::filesystem::exists(config_.port_file)) std::this_thread::yield();
    std::ifstream file(config_.port_file);
    const int port = nlohmann::json::parse(file).at("grpc").get<int>();
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                   grpc::InsecureChannelCredentials());
    stub_ = v1::GenerationService::NewStub(channel_);
    return served;
  }

  // A request that is held in its first step.
  std::future<grpc::Status> StartHeld(uint32_t steps = 32) {
    engine_->gate().Close();
    auto running = std::async(std::launch::async, [this, steps] { return Generate(steps); });
    engine_->gate().WaitUntilHeld();
    return running;
  }

  grpc::Status Generate(uint32_t steps = 32) {
    v1::GenerateRequest request = StoryRequest(steps);
    request.mutable_decoding()->set_steps(steps);
    grpc::ClientContext context;
    v1::GenerateResponse response;
    return stub_->Generate(&context, request, &response);
  }

  bool Draining() {
    grpc::ClientContext context;
    v1::GetLoadResponse load;
    EXPECT_TRUE(stub_->GetLoad(&context, v1::GetLoadRequest(), &load).ok());
    return load.draining();
  }

  ServerConfig config_;
  StopRequest stop_;
  ModelInfo info_ = DemoModelInfo();
  DemoEngine* engine_ = nullptr;
  bool guard_ = true;  // of the engine's options
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::GenerationService::Stub> stub_;
};

TEST_F(ServeTest, ServesUntilAskedToStop) {
  auto served = StartServing();
  EXPECT_TRUE(Generate().ok());
  stop_.Request();
  EXPECT_THAT(served.get(), IsOk());
}

TEST_F(ServeTest, TheGuardIsTurnedOffInTheEngine) {
  config_.attention_guard = false;
  auto served = StartServing();
  EXPECT_FALSE(guard_);
  stop_.Request();
  EXPECT_THAT(served.get(), IsOk());
}

TEST_F(ServeTest, DrainFinishesWhatRunsAndRefusesTheRest) {
  auto served = StartServing();
  auto running = StartHeld();
  stop_.Request();
  while (!Draining()) std::this_thread::yield();
  std::string health;
  EXPECT_TRUE(RawClient(channel_).Unary("/grpc.health.v1.Health/Check", "", &health).ok());
  EXPECT_EQ(health, kNotServing);
  EXPECT_FALSE(Generate().ok());
  engine_->gate().Open();
  EXPECT_TRUE(running.get().ok());
  EXPECT_THAT(served.get(), IsOk());
}

TEST_F(ServeTest, ASecondRequestToStopDropsWhatRuns) {
  auto served = StartServing();
  auto running = StartHeld(2048);
  stop_.Request();
  while (!Draining()) std::this_thread::yield();
  auto urgent = std::async(std::launch::async, [this] { stop_.Request(); });
  // The request has more steps than it can take before the second request to stop is noticed.
  while (running.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    engine_->gate().LetOneThrough();
    std::this_thread::yield();
  }
  EXPECT_EQ(running.get().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(served.get(), IsOk());
}

TEST_F(ServeTest, TheDrainLimitDropsWhatRuns) {
  config_.drain_seconds = 0;
  auto served = StartServing();
  auto running = StartHeld();
  stop_.Request();
  while (!Draining()) std::this_thread::yield();
  engine_->gate().LetOneThrough();
  EXPECT_EQ(running.get().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(served.get(), IsOk());
}

TEST_F(ServeTest, AStopWhileLoadingAbandonsTheLoad) {
  std::promise<void> loading;
  auto served = std::async(std::launch::async, [&] {
    return Serve(
        config_,
        [&](const EngineOptions& options) -> absl::StatusOr<std::unique_ptr<Engine>> {
          EXPECT_TRUE(options.on_progress(0.25));
          loading.set_value();
          while (options.on_progress(0.5)) std::this_thread::yield();
          return absl::CancelledError("abandoned");
        },
        &stop_);
  });
  loading.get_future().wait();
  stop_.Request();
  EXPECT_THAT(served.get(), IsOk());
  EXPECT_FALSE(std::filesystem::exists(config_.port_file));
}

TEST_F(ServeTest, AModelThatDoesNotLoadIsAnError) {
  const auto fails = [](const EngineOptions&) -> absl::StatusOr<std::unique_ptr<Engine>> {
    return absl::NotFoundError("no config.json in /nowhere");
  };
  EXPECT_THAT(Serve(config_, fails, &stop_),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere")));
}

TEST_F(ServeTest, TensorsThatTheModelDoesNotUseAreWarnedOf) {
  info_.ignored_tensors = {"a.bias", "b.bias", "c.bias", "d.bias"};
  const CapturedLog log;
  auto served = StartServing();
  stop_.Request();
  EXPECT_THAT(served.get(), IsOk());
  EXPECT_THAT(log.text(),
              HasSubstr("warning ignored_tensors count=4 first=\"a.bias, b.bias, c.bias\"\n"));
}

TEST_F(ServeTest, AModelThatUsesAllItsTensorsIsNotWarnedOf) {
  const CapturedLog log;
  auto served = StartServing();
  stop_.Request();
  EXPECT_THAT(served.get(), IsOk());
  EXPECT_THAT(log.text(), Not(HasSubstr("ignored_tensors")));
}

TEST_F(ServeTest, ATakenPortIsReportedByTheErrorAlone) {
  RouteLibraryLogs();
  TestServer other;
  config_.listen = "127.0.0.1:" + std::to_string(other.grpc().port());
  const auto loads = [](const EngineOptions&) -> absl::StatusOr<std::unique_ptr<Engine>> {
    return std::make_unique<DemoEngine>();
  };
  const CapturedLog log;
  EXPECT_THAT(Serve(config_, loads, &stop_),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(config_.listen)));
  EXPECT_THAT(log.text(), AllOf(HasSubstr("debug grpc"), Not(HasSubstr("warning"))));
}

TEST_F(ServeTest, EngineOptionsComeFromTheConfiguration) {
  config_.mask_budget_mib = 3;
  config_.max_rows = 5;
  config_.threads = 2;
  EngineOptions seen;
  const auto looks = [&](const EngineOptions& options) -> absl::StatusOr<std::unique_ptr<Engine>> {
    seen = options;
    return absl::UnimplementedError("seen");
  };
  EXPECT_FALSE(Serve(config_, looks, &stop_).ok());
  EXPECT_EQ(seen.model_dir, config_.model_dir);
  EXPECT_EQ(seen.mask_budget_bytes, 3 << 20);
  EXPECT_EQ(seen.max_rows, 5);
  EXPECT_EQ(seen.threads, 2);
}

TEST_F(ServeTest, APortFileThatCannotBeWrittenIsNamed) {
  config_.port_file = "/nowhere/ports.json";
  const auto loads = [](const EngineOptions&) -> absl::StatusOr<std::unique_ptr<Engine>> {
    return std::make_unique<DemoEngine>();
  };
  EXPECT_THAT(Serve(config_, loads, &stop_),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere/ports.json")));
}

}  // namespace
}  // namespace sparsed::testing
