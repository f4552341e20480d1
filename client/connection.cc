// SPDX-License-Identifier: Apache-2.0
#include "client/connection.h"

#include <chrono>
#include <cstdlib>
#include <utility>

#include <grpc/support/log.h>

namespace sparsed::client {
namespace {

// Edits of a whole 64k canvas with predictions stay far below this.
constexpr int kMaxReceiveBytes = 64 << 20;
constexpr int kConnectMilliseconds = 5000;

std::shared_ptr<grpc::Channel> NewChannel(const std::string& server) {
  if (std::getenv("GRPC_VERBOSITY") == nullptr) {
    // gRPC's own log is for those who asked for it; users get our messages.
    gpr_set_log_function([](gpr_log_func_args*) {});
  }
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMilliseconds);
  // A proxy of the environment is for the web, and cannot reach a server on this machine.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetUserAgentPrefix("sparsectl/" SPARSED_VERSION);
  return grpc::CreateCustomChannel(server, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

Connection::Connection(std::string server, std::optional<double> timeout_seconds)
    : server_(std::move(server)),
      timeout_seconds_(timeout_seconds),
      channel_(NewChannel(server_)),
      generation_(v1::GenerationService::NewStub(channel_)),
      health_(grpc::health::v1::Health::NewStub(channel_)) {}

std::unique_ptr<grpc::ClientContext> Connection::NewContext() const {
  auto context = std::make_unique<grpc::ClientContext>();
  if (timeout_seconds_) {
    context->set_deadline(std::chrono::system_clock::now() +
                          std::chrono::microseconds(static_cast<int64_t>(*timeout_seconds_ * 1e6)));
  }
  return context;
}

bool Connection::reached() const {
  return channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY;
}

}  // namespace sparsed::client
