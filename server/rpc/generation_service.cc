// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/generation_service.h"

#include <utility>

#include <absl/strings/str_cat.h>

#include "engine/base/invalid_field.h"
#include "engine/base/status_macros.h"
#include "server/rpc/catch_all.h"
#include "server/rpc/convert.h"
#include "server/rpc/status.h"
#include "server/rpc/stream_reactor.h"
#include "server/rpc/unary_reactor.h"
#include "server/rpc/wire.h"
#include "server/version.h"

namespace sparsed {
namespace {

absl::Status Loading() {
  return absl::UnavailableError("the model is still loading; try again in a moment");
}

// Answers at once with what `handler(backend, request)` returns, a StatusOr of a message.
template <class RequestMessage, class Handler>
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const Backend* backend,
                                 const grpc::ByteBuffer& bytes, grpc::ByteBuffer* response,
                                 Handler handler) {
  const absl::Status status = CatchAll([&]() -> absl::Status {
    if (backend == nullptr) return Loading();
    RequestMessage request;
    RETURN_IF_ERROR(ParseMessage(bytes, &request));
    ASSIGN_OR_RETURN(const auto answer, handler(*backend, request));
    *response = SerializeMessage(answer);
    return absl::OkStatus();
  });
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

class RefusedStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  explicit RefusedStream(const absl::Status& status) { Finish(ToGrpcStatus(status)); }

 private:
  void OnDone() override { delete this; }
};

absl::StatusOr<v1::CancelResponse> CancelRequestById(const Backend& backend,
                                                     const v1::CancelRequest& request) {
  if (request.request_id().empty()) {
    return InvalidField("request_id", "empty", "must name the request to cancel");
  }
  v1::CancelResponse response;
  response.set_cancelled(backend.admission->Cancel(request.request_id()));
  return response;
}

absl::StatusOr<v1::GetLoadResponse> DescribeLoad(const Backend& backend) {
  const AdmissionLoad admission = backend.admission->load();
  const EngineLoad engine = backend.engine->load();
  v1::GetLoadResponse response;
  response.set_queued_requests(static_cast<uint32_t>(admission.queued));
  response.set_max_queued_requests(static_cast<uint32_t>(admission.max_queued));
  response.set_running_rows(static_cast<uint32_t>(engine.rows));
  response.set_max_rows(static_cast<uint32_t>(engine.max_rows));
  response.set_mask_bytes_used(static_cast<uint64_t>(engine.mask_bytes_used));
  response.set_mask_bytes_budget(static_cast<uint64_t>(engine.mask_bytes_budget));
  response.set_draining(admission.draining);
  return response;
}

absl::StatusOr<std::vector<int32_t>> EncodeTokenizeInput(const ServedModel& model,
                                                         const v1::TokenizeRequest& request) {
  switch (request.input_case()) {
    case v1::TokenizeRequest::kText:
      return EncodeText(model, "text", request.text());
    case v1::TokenizeRequest::kChat:
      if (request.chat().messages_size() > 0) return EncodeChat(model, request.chat());
      return InvalidField("chat.messages", "empty", "must hold at least one message");
    case v1::TokenizeRequest::INPUT_NOT_SET:
      break;
  }
  return InvalidField("input", "unset", "must be one of text or chat");
}

absl::StatusOr<v1::TokenizeResponse> TokenizeInput(const Backend& backend,
                                                   const v1::TokenizeRequest& request) {
  const ServedModel& model = *backend.model;
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, EncodeTokenizeInput(model, request));
  v1::TokenizeResponse response;
  for (const int32_t id : ids) {
    response.add_ids(static_cast<uint32_t>(id));
    response.add_pieces(model.tokenizer->TokenBytes(id));
  }
  return response;
}

absl::StatusOr<v1::DetokenizeResponse> DetokenizeIds(const Backend& backend,
                                                     const v1::DetokenizeRequest& request) {
  const ServedModel& model = *backend.model;
  if (request.ids_size() > model.info.max_length) {
    return InvalidField("ids", absl::StrCat(request.ids_size(), " ids"),
                        absl::StrCat("must be at most max_length ", model.info.max_length));
  }
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                   CheckTokenIds(request.ids(), model.info.vocabulary_size, "ids"));
  const bool skip_special = !request.has_skip_special() || request.skip_special();
  v1::DetokenizeResponse response;
  ASSIGN_OR_RETURN(*response.mutable_text(), DecodeText(model, ids, skip_special));
  return response;
}

}  // namespace

grpc::ServerUnaryReactor* GenerationService::Generate(Context* context, const Bytes* request,
                                                      Bytes* response) {
  const Backend* backend = backend_;
  if (backend != nullptr) return UnaryReactor::Start(*backend, *context, *request, response);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(Loading()));
  return reactor;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerationService::GenerateStream(
    Context* context, const Bytes* request) {
  const Backend* backend = backend_;
  if (backend == nullptr) return new RefusedStream(Loading());
  return StreamReactor::Start(*backend, *context, *request);
}

grpc::ServerUnaryReactor* GenerationService::Cancel(Context* context, const Bytes* request,
                                                    Bytes* response) {
  return Answer<v1::CancelRequest>(context, backend_, *request, response, CancelRequestById);
}

grpc::ServerUnaryReactor* GenerationService::GetModel(Context* context, const Bytes* request,
                                                      Bytes* response) {
  return Answer<v1::GetModelRequest>(
      context, backend_, *request, response,
      [](const Backend& backend, const auto&) -> absl::StatusOr<v1::GetModelResponse> {
        v1::GetModelResponse model = DescribeModel(*backend.model);
        model.set_server_version(ServerVersion());
        return model;
      });
}

grpc::ServerUnaryReactor* GenerationService::GetLoad(Context* context, const Bytes* request,
                                                     Bytes* response) {
  return Answer<v1::GetLoadRequest>(
      context, backend_, *request, response,
      [](const Backend& backend, const auto&) { return DescribeLoad(backend); });
}

grpc::ServerUnaryReactor* GenerationService::Tokenize(Context* context, const Bytes* request,
                                                      Bytes* response) {
  return Answer<v1::TokenizeRequest>(context, backend_, *request, response, TokenizeInput);
}

grpc::ServerUnaryReactor* GenerationService::Detokenize(Context* context, const Bytes* request,
                                                        Bytes* response) {
  return Answer<v1::DetokenizeRequest>(context, backend_, *request, response, DetokenizeIds);
}

}  // namespace sparsed
