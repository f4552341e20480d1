// SPDX-License-Identifier: Apache-2.0
// GenerationService: sparsed.v1.GenerationService on gRPC's callback API.
// Until SetBackend every call is answered UNAVAILABLE (the model is loading). Handlers run on
// gRPC's threads, take raw bytes (wire.h says why) and never let an exception out.
#pragma once

#include <atomic>

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "server/rpc/backend.h"
#include "sparsed/v1/generation.grpc.pb.h"

namespace sparsed {

// Every method as a raw callback.
using RawGenerationService = v1::GenerationService::WithRawCallbackMethod_Generate<
    v1::GenerationService::WithRawCallbackMethod_GenerateStream<
        v1::GenerationService::WithRawCallbackMethod_Cancel<
            v1::GenerationService::WithRawCallbackMethod_GetModel<
                v1::GenerationService::WithRawCallbackMethod_GetLoad<
                    v1::GenerationService::WithRawCallbackMethod_Tokenize<
                        v1::GenerationService::WithRawCallbackMethod_Detokenize<
                            v1::GenerationService::Service>>>>>>>;

class GenerationService final : public RawGenerationService {
 public:
  // `backend` must outlive the gRPC server. Once.
  void SetBackend(const Backend* backend) { backend_ = backend; }

 private:
  using Context = grpc::CallbackServerContext;
  using Bytes = grpc::ByteBuffer;

  grpc::ServerUnaryReactor* Generate(Context* context, const Bytes* request,
                                     Bytes* response) override;
  grpc::ServerWriteReactor<Bytes>* GenerateStream(Context* context, const Bytes* request) override;
  grpc::ServerUnaryReactor* Cancel(Context* context, const Bytes* request,
                                   Bytes* response) override;
  grpc::ServerUnaryReactor* GetModel(Context* context, const Bytes* request,
                                     Bytes* response) override;
  grpc::ServerUnaryReactor* GetLoad(Context* context, const Bytes* request,
                                    Bytes* response) override;
  grpc::ServerUnaryReactor* Tokenize(Context* context, const Bytes* request,
                                     Bytes* response) override;
  grpc::ServerUnaryReactor* Detokenize(Context* context, const Bytes* request,
                                       Bytes* response) override;

  std::atomic<const Backend*> backend_ = nullptr;
};

}  // namespace sparsed
