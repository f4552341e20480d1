// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/unary_reactor.h"

#include "engine/base/status_macros.h"
#include "server/rpc/catch_all.h"
#include "server/rpc/status.h"
#include "server/rpc/wire.h"

namespace sparsed {

grpc::ServerUnaryReactor* UnaryReactor::Start(const Backend& backend,
                                              const grpc::CallbackServerContext& context,
                                              const grpc::ByteBuffer& request,
                                              grpc::ByteBuffer* response) {
  std::shared_ptr<UnaryReactor> reactor(new UnaryReactor(backend, context, response));
  reactor->self_ = reactor;
  const absl::Status status =
      CatchAll([&] { return reactor->call_.Submit(request, CallKind::kUnary); });
  if (!status.ok()) {
    reactor->Finish(ToGrpcStatus(status));
    return reactor.get();
  }
  reactor->call_.SetWake([weak = std::weak_ptr(reactor)] {
    if (const auto locked = weak.lock()) locked->Pump();
  });
  return reactor.get();
}

void UnaryReactor::Pump() {
  const std::optional<Event> event = call_.TryTake();
  if (!event) return;
  const FinishedEvent& finished = std::get<FinishedEvent>(*event);  // this mailbox has no others
  absl::Status status = finished.status;
  if (status.ok()) {
    status = CatchAll([&] {
      ASSIGN_OR_RETURN(const v1::GenerateResponse response, call_.MakeFinalResponse(finished));
      *response_ = SerializeMessage(response);
      return absl::OkStatus();
    });
  }
  call_.LogFinished(finished, status);
  Finish(ToGrpcStatus(status));
}

}  // namespace sparsed
