// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/live_server.h"

#include <csignal>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <unistd.h>
#include <utility>

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <nlohmann/json.hpp>

#include "tests/support/eventually.h"

namespace sparsed::testing {
namespace {

// A hung server fails the test instead of hanging it.
void SetLimit(grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() + kPatience);
}

std::filesystem::path NewPortFile() {
  const std::string name = "sparsed_e2e_" + std::to_string(getpid()) + ".json";
  std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / name;
  std::filesystem::remove(path);
  return path;
}

}  // namespace

std::filesystem::path DemoModelDir() {
  return std::filesystem::path(SPARSED_SOURCE_DIR) / "models/demo-llada-17m";
}

LiveServer::LiveServer(const std::vector<std::string>& flags) : port_file_(NewPortFile()) {
  std::vector<std::string> command = {SPARSED_BINARY_DIR "/bin/sparsed",
                                      "--model",
                                      DemoModelDir(),
                                      "--listen",
                                      "127.0.0.1:0",
                                      "--http-listen",
                                      "127.0.0.1:0",
                                      "--port-file",
                                      port_file_};
  command.insert(command.end(), flags.begin(), flags.end());
  process_ = std::make_unique<Subprocess>(
      command, Subprocess::Options{.environment = InheritedEnvironment()});
  const bool started = Eventually([this] {
    return std::filesystem::exists(port_file_) || process_->EndsWithin(std::chrono::seconds(0));
  });
  if (!started || !std::filesystem::exists(port_file_)) {
    process_->Signal(SIGKILL);
    std::cerr << process_->Wait().error;
    process_ = nullptr;
    throw std::runtime_error("the server did not start");  // no test of it can mean anything
  }
  Connect();
}

LiveServer::~LiveServer() {
  if (process_ != nullptr) {
    Signal(SIGTERM);
    EXPECT_EQ(ExitCode(), 0);
  }
  std::filesystem::remove(port_file_);
}

void LiveServer::Connect() {
  std::ifstream file(port_file_);
  const auto ports = nlohmann::json::parse(file);
  http_port_ = ports.at("http").get<int>();
  address_ = "127.0.0.1:" + std::to_string(ports.at("grpc").get<int>());
  channel_ = grpc::CreateChannel(address_, grpc::InsecureChannelCredentials());
  stub_ = v1::GenerationService::NewStub(channel_);
  health_ = grpc::health::v1::Health::NewStub(channel_);
}

v1::GetModelResponse LiveServer::Model() {
  grpc::ClientContext context;
  SetLimit(&context);
  v1::GetModelResponse model;
  EXPECT_TRUE(stub_->GetModel(&context, v1::GetModelRequest(), &model).ok());
  return model;
}

v1::GetLoadResponse LiveServer::Load() {
  grpc::ClientContext context;
  SetLimit(&context);
  v1::GetLoadResponse load;
  const grpc::Status status = stub_->GetLoad(&context, v1::GetLoadRequest(), &load);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return load;
}

bool LiveServer::Healthy() {
  grpc::ClientContext context;
  SetLimit(&context);
  grpc::health::v1::HealthCheckResponse response;
  const grpc::Status status =
      health_->Check(&context, grpc::health::v1::HealthCheckRequest(), &response);
  return status.ok() && response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
}

bool LiveServer::Cancel(const std::string& request_id) {
  grpc::ClientContext context;
  SetLimit(&context);
  v1::CancelRequest request;
  request.set_request_id(request_id);
  v1::CancelResponse response;
  EXPECT_TRUE(stub_->Cancel(&context, request, &response).ok());
  return response.cancelled();
}

std::string LiveServer::ScrapeText() const {
  httplib::Client client("127.0.0.1", http_port_);
  const httplib::Result result = client.Get("/metrics");
  EXPECT_TRUE(result);
  if (!result) return "";
  EXPECT_EQ(result->status, 200);
  return result->body;
}

Exposition LiveServer::Scrape() const {
  absl::StatusOr<Exposition> parsed = Exposition::Parse(ScrapeText());
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? *std::move(parsed) : Exposition();
}

bool LiveServer::BecomesIdle() {
  return Eventually([this] {
    const v1::GetLoadResponse load = Load();
    return load.queued_requests() == 0 && load.running_rows() == 0 && load.mask_bytes_used() == 0;
  });
}

int LiveServer::ExitCode() {
  const bool ended = process_->EndsWithin(kPatience);
  EXPECT_TRUE(ended) << "the server does not stop";
  if (!ended) Signal(SIGKILL);
  const Finished finished = std::exchange(process_, nullptr)->Wait();
  if (::testing::Test::HasFailure() || finished.exit_code != 0) {
    std::cerr << "--- log of the server ---\n" << finished.error << finished.out;
  }
  return ended ? finished.exit_code : -1;
}

}  // namespace sparsed::testing
