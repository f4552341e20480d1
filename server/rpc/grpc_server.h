// SPDX-License-Identifier: Apache-2.0
// GrpcServer: the listening gRPC server: GenerationService, health, reflection.
//
//   ASSIGN_OR_RETURN(auto server, GrpcServer::Start({.listen = "127.0.0.1:0"}));
//   server->StartServing(backend);   // health SERVING; before, calls are UNAVAILABLE
//   server->StopServing();           // health NOT_SERVING; calls are still answered
//   server->Shutdown();              // lets last answers be read, then ends everything
//
// One owner thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/statusor.h>
#include <grpcpp/server.h>

#include "server/rpc/backend.h"
#include "server/rpc/generation_service.h"

namespace sparsed {

struct GrpcServerOptions {
  std::string listen = "127.0.0.1:0";  // HOST:PORT; port 0 = a free one
  int32_t max_message_mib = 16;        // larger requests are RESOURCE_EXHAUSTED
};

class GrpcServer {
 public:
  // UNAVAILABLE: the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const GrpcServerOptions& options);
  ~GrpcServer();  // Shutdown

  int port() const { return port_; }
  LiveCalls& live_calls() { return live_calls_; }

  // `backend` must outlive the server; its live_calls is set here. Once.
  void StartServing(Backend backend);
  void StopServing();
  void Shutdown();

 private:
  GrpcServer() = default;
  void SetHealth(bool serving);

  Backend backend_;
  LiveCalls live_calls_;
  GenerationService service_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

}  // namespace sparsed
