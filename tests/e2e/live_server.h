// SPDX-License-Identifier: Apache-2.0
// LiveServer: the real sparsed binary with the embedded model, as a child process on free ports.
//
//   LiveServer server({"--max-rows", "1"});
//   server.stub().Generate(&context, request, &response);
//   EXPECT_EQ(server.Scrape().Value("sparsed_requests_running"), 0);
//
// The constructor returns when requests are served. The destructor stops the server as an operator
// would and expects exit code 0; after a failure it prints the server's log. The methods but Stop
// and Signal may be called from any thread.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/channel.h>

#include "grpc_health/health.grpc.pb.h"
#include "sparsed/v1/generation.grpc.pb.h"
#include "tests/support/exposition.h"
#include "tests/support/subprocess.h"

namespace sparsed::testing {

// Folder of the embedded model.
std::filesystem::path DemoModelDir();

class LiveServer {
 public:
  explicit LiveServer(const std::vector<std::string>& flags = {});
  ~LiveServer();
  LiveServer(const LiveServer&) = delete;
  LiveServer& operator=(const LiveServer&) = delete;

  v1::GenerationService::Stub& stub() { return *stub_; }
  const std::string& address() const { return address_; }

  v1::GetModelResponse Model();
  v1::GetLoadResponse Load();
  // False also when the server does not answer.
  bool Healthy();
  bool Cancel(const std::string& request_id);

  std::string ScrapeText() const;
  Exposition Scrape() const;

  // Waits until nothing is queued or running and no mask byte is held.
  bool BecomesIdle();

  void Signal(int signal) const { process_->Signal(signal); }
  // Waits for the end; -1 after a server that did not end in time.
  int ExitCode();

 private:
  void Connect();

  std::filesystem::path port_file_;
  std::unique_ptr<Subprocess> process_;
  std::string address_;
  int http_port_ = 0;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::GenerationService::Stub> stub_;
  std::unique_ptr<grpc::health::v1::Health::Stub> health_;
};

}  // namespace sparsed::testing
