// SPDX-License-Identifier: Apache-2.0
// Connection: the channel to one server and its stubs.
//
//   Connection connection("127.0.0.1:50051", timeout_seconds);
//   auto context = connection.NewContext();
//   grpc::Status status = connection.generation().GetModel(context.get(), request, &response);
//
// Connecting is lazy: the first call finds out whether a server listens. Thread-safe as stubs are.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <grpcpp/grpcpp.h>

#include "grpc_health/health.grpc.pb.h"
#include "sparsed/v1/generation.grpc.pb.h"

namespace sparsed::client {

class Connection {
 public:
  // timeout_seconds: for each call from its NewContext on; unset: no limit.
  Connection(std::string server, std::optional<double> timeout_seconds);

  std::unique_ptr<grpc::ClientContext> NewContext() const;

  v1::GenerationService::Stub& generation() { return *generation_; }
  grpc::health::v1::Health::Stub& health() { return *health_; }
  const std::string& server() const { return server_; }

  // False: no call has reached a gRPC server, so UNAVAILABLE means "nobody listens". True: a server
  // is there, and the code is its own word.
  bool reached() const;

 private:
  const std::string server_;
  const std::optional<double> timeout_seconds_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::GenerationService::Stub> generation_;
  const std::unique_ptr<grpc::health::v1::Health::Stub> health_;
};

}  // namespace sparsed::client
