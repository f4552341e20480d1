// SPDX-License-Identifier: Apache-2.0
// UnaryReactor: one Generate call. Sleeps until the job's last event, then answers.
// Owns itself from Start to OnDone. The answer is made by the thread that posts the event.
#pragma once

#include <memory>

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "server/rpc/generation_call.h"

namespace sparsed {

class UnaryReactor final : public grpc::ServerUnaryReactor {
 public:
  // `response` is gRPC's and lives until OnDone.
  static grpc::ServerUnaryReactor* Start(const Backend& backend,
                                         const grpc::CallbackServerContext& context,
                                         const grpc::ByteBuffer& request,
                                         grpc::ByteBuffer* response);

 private:
  UnaryReactor(const Backend& backend, const grpc::CallbackServerContext& context,
               grpc::ByteBuffer* response)
      : call_(backend, context), response_(response) {}

  void Pump();
  void OnCancel() override { call_.HangUp(); }
  void OnDone() override { self_ = nullptr; }

  GenerationCall call_;
  grpc::ByteBuffer* const response_;
  std::shared_ptr<UnaryReactor> self_;
};

}  // namespace sparsed
