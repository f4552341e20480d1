// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/grpc_server.h"

#include <chrono>

#include <absl/strings/str_cat.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>

#include "server/rpc/library_logs.h"

namespace sparsed {
namespace {

// How long clients get to read their last message once the step loop has ended.
constexpr std::chrono::seconds kLastWords{5};

void SetChannelArguments(grpc::ServerBuilder* builder) {
  // By default gRPC would let a second server take a port that is in use.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Clients behind proxies ping to keep connections open; the default answers with GOAWAY.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Our own pings notice clients that vanished without closing the connection.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const GrpcServerOptions& options) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  std::unique_ptr<GrpcServer> started(new GrpcServer());
  grpc::ServerBuilder builder;
  SetChannelArguments(&builder);
  builder.SetMaxReceiveMessageSize(options.max_message_mib * 1024 * 1024);
  builder.AddListeningPort(options.listen, grpc::InsecureServerCredentials(), &started->port_);
  builder.RegisterService(&started->service_);
  {
    const ErrorsAreReported scope;
    started->server_ = builder.BuildAndStart();
  }
  if (started->server_ == nullptr || started->port_ == 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", options.listen,
                                               " (--listen): is the port in use by another "
                                               "process, and the address one of this machine?"));
  }
  started->SetHealth(false);
  return started;
}

GrpcServer::~GrpcServer() { Shutdown(); }

void GrpcServer::SetHealth(bool serving) {
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  health->SetServingStatus("", serving);
  health->SetServingStatus(v1::GenerationService::service_full_name(), serving);
}

void GrpcServer::StartServing(Backend backend) {
  backend_ = backend;
  backend_.live_calls = &live_calls_;
  service_.SetBackend(&backend_);
  SetHealth(true);
}

void GrpcServer::StopServing() { SetHealth(false); }

void GrpcServer::Shutdown() {
  if (server_ == nullptr) return;
  live_calls_.WaitForNone(kLastWords);
  // What is left are streams without an end of their own, such as health Watch.
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_ = nullptr;
}

}  // namespace sparsed
