// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/stream_reactor.h"

#include "engine/base/status_macros.h"
#include "server/rpc/catch_all.h"
#include "server/rpc/status.h"
#include "server/rpc/wire.h"

namespace sparsed {

grpc::ServerWriteReactor<grpc::ByteBuffer>* StreamReactor::Start(
    const Backend& backend, const grpc::CallbackServerContext& context,
    const grpc::ByteBuffer& request) {
  std::shared_ptr<StreamReactor> reactor(new StreamReactor(backend, context));
  reactor->self_ = reactor;
  const absl::Status status =
      CatchAll([&] { return reactor->call_.Submit(request, CallKind::kStream); });
  if (!status.ok()) {
    reactor->Finish(ToGrpcStatus(status));
    return reactor.get();
  }
  reactor->call_.SetWake([weak = std::weak_ptr(reactor)] {
    if (const auto locked = weak.lock()) locked->Pump();
  });
  return reactor.get();
}

void StreamReactor::Pump() {
  // After Finish gRPC may call OnDone from another thread before the lock below is released.
  const std::shared_ptr<StreamReactor> keep_alive = shared_from_this();
  MutexLock lock(&mutex_);
  while (!writing_ && !complete_) {
    const std::optional<Event> event = call_.TryTake();
    if (!event) return;
    if (const auto* finished = std::get_if<FinishedEvent>(&*event)) {
      Complete(*finished);
    } else if (broken_.ok()) {
      Send(*event);
    }
  }
}

void StreamReactor::Send(const Event& event) {
  broken_ = Fill(event);
  if (!broken_.ok()) return call_.HangUp();
  writing_ = true;
  StartWrite(&buffer_);
}

void StreamReactor::Complete(const FinishedEvent& event) {
  complete_ = true;
  absl::Status status = broken_.ok() ? event.status : broken_;
  if (status.ok()) status = Fill(event);
  call_.LogFinished(event, status);
  if (status.ok()) {
    StartWriteAndFinish(&buffer_, grpc::WriteOptions(), grpc::Status::OK);
  } else {
    Finish(ToGrpcStatus(status));
  }
}

absl::Status StreamReactor::Fill(const Event& event) {
  return CatchAll([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ASSIGN_OR_RETURN(const v1::GenerateEvent made, call_.MakeEvent(event));
    buffer_ = SerializeMessage(made);
    return absl::OkStatus();
  });
}

void StreamReactor::OnWriteDone(bool ok) {
  {
    MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok && broken_.ok()) {
      broken_ = absl::CancelledError("the client stopped reading");
      call_.HangUp();
    }
  }
  Pump();
}

}  // namespace sparsed
