// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/generation_call.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include <absl/strings/str_format.h>

#include "engine/base/invalid_field.h"
#include "engine/base/status_macros.h"
#include "server/log.h"
#include "server/rpc/convert.h"
#include "server/rpc/respond.h"
#include "server/rpc/wire.h"

namespace sparsed {
namespace {

// gRPC keeps deadlines on the system clock, the server its own on a steady one.
std::optional<TimePoint> SteadyDeadline(const grpc::CallbackServerContext& context, TimePoint now) {
  const std::chrono::system_clock::time_point deadline = context.deadline();
  const auto left = deadline - std::chrono::system_clock::now();
  // "No deadline" is the end of time, which would overflow.
  if (left > std::chrono::hours(24 * 365)) return std::nullopt;
  return now + left;
}

std::string MakeRequestId() {
  std::random_device random;
  return absl::StrFormat("req-%08x%08x", random(), random());
}

}  // namespace

GenerationCall::GenerationCall(const Backend& backend, const grpc::CallbackServerContext& context)
    : backend_(backend),
      peer_(context.peer()),
      arrival_(backend.clock->Now()),
      deadline_(SteadyDeadline(context, arrival_)),
      live_(backend.live_calls->Enter()) {}

GenerationCall::~GenerationCall() {
  if (mailbox_) mailbox_->SetWake(nullptr);
}

absl::Status GenerationCall::Submit(const grpc::ByteBuffer& bytes, CallKind kind) {
  v1::GenerateRequest request;
  absl::Status status = ParseMessage(bytes, &request);
  if (status.ok()) status = CheckRequest(request);
  if (status.ok()) status = Queue(request, kind);
  if (!status.ok()) {
    backend_.metrics->CountRequest(status.code());
    LogRefused(status);
  }
  return status;
}

absl::Status GenerationCall::Queue(const v1::GenerateRequest& request, CallKind kind) {
  request_id_ = request.request_id().empty() ? MakeRequestId() : request.request_id();
  ASSIGN_OR_RETURN(Admission::Slot slot, backend_.admission->Reserve());
  ASSIGN_OR_RETURN(Request prepared, Prepare(request, kind));
  MailboxOptions options;
  options.final_only = kind == CallKind::kUnary;
  if (request.streaming().has_every_steps()) {
    // More steps than any request has: only the last one is due.
    constexpr uint32_t kLast = 1u << 30;
    options.every_steps = static_cast<int32_t>(std::min(request.streaming().every_steps(), kLast));
  }
  mailbox_ = std::make_shared<Mailbox>(options, backend_.clock);
  Job job{request_id_, std::move(prepared), arrival_, deadline_, mailbox_};
  absl::StatusOr<JobId> id = backend_.admission->Submit(std::move(slot), std::move(job));
  if (!id.ok()) {
    mailbox_ = nullptr;
    return id.status();
  }
  job_id_ = *id;
  return absl::OkStatus();
}

absl::StatusOr<Request> GenerationCall::Prepare(const v1::GenerateRequest& request, CallKind kind) {
  ASSIGN_OR_RETURN(std::vector<int32_t> prompt, EncodeInput(request, *backend_.model));
  ASSIGN_OR_RETURN(Request prepared, ResolveRequest(request, std::move(prompt), *backend_.model));
  if (kind == CallKind::kUnary) prepared.want_provisional = false;
  RETURN_IF_ERROR(backend_.engine->Validate(prepared));
  preset_ = prepared.attention.preset;
  resolved_ = EchoResolved(prepared);
  return prepared;
}

absl::StatusOr<v1::GenerateEvent> GenerationCall::MakeEvent(const Event& event) {
  v1::GenerateEvent made;
  if (const auto* started = std::get_if<StartedEvent>(&event)) {
    *made.mutable_started() = MakeStarted(*started, resolved_);
  } else if (const auto* progress = std::get_if<ProgressEvent>(&event)) {
    *made.mutable_progress() = MakeProgress(*progress, *backend_.model->tokenizer);
  } else {
    ASSIGN_OR_RETURN(*made.mutable_finished(), MakeFinalResponse(std::get<FinishedEvent>(event)));
  }
  made.set_request_id(request_id_);
  made.set_sequence(next_sequence_++);
  return made;
}

absl::StatusOr<v1::GenerateResponse> GenerationCall::MakeFinalResponse(
    const FinishedEvent& event) const {
  ASSIGN_OR_RETURN(v1::GenerateResponse response, MakeResponse(event, *backend_.model));
  response.set_request_id(request_id_);
  *response.mutable_resolved() = resolved_;
  return response;
}

void GenerationCall::LogFinished(const FinishedEvent& event, const absl::Status& status) const {
  const size_t generated = status.ok() ? GeneratedTokens(event.canvas, *backend_.model).size() : 0;
  const bool guarded = event.sparsity.guard != GuardReason::kNone;
  const bool broken = absl::IsInternal(status) || absl::IsUnknown(status);
  Log(broken ? LogLevel::kError : LogLevel::kInfo, "request",
      {{"id", request_id_},
       {"peer", peer_},
       {"code", absl::StatusCodeToString(status.code())},
       {"preset", preset_},
       {"prompt_tokens", event.usage.prompt_tokens},
       {"generated_tokens", generated},
       {"steps", event.usage.steps},
       {"queue_seconds", event.timings.queue_seconds},
       {"total_seconds", event.timings.total_seconds},
       {"density", event.sparsity.mean_density},
       {"retained_mass", event.sparsity.retained_mass},
       {"guard", guarded ? std::optional(GuardReasonName(event.sparsity.guard)) : std::nullopt},
       // Other messages may quote what the client wrote.
       {"error", broken ? std::optional<std::string>(status.message()) : std::nullopt}});
}

void GenerationCall::LogRefused(const absl::Status& status) const {
  Log(LogLevel::kInfo, "request",
      {{"id", request_id_.empty() ? std::nullopt : std::optional<std::string>(request_id_)},
       {"peer", peer_},
       {"code", absl::StatusCodeToString(status.code())},
       {"field", InvalidFieldPath(status)},
       {"total_seconds", Seconds(backend_.clock->Now() - arrival_)}});
}

void GenerationCall::HangUp() {
  if (!job_id_) return;
  // The client's timer started before ours, so its hang-up may come a moment before our deadline.
  constexpr Duration kTimerSkew = std::chrono::milliseconds(20);
  if (deadline_ && backend_.clock->Now() + kTimerSkew >= *deadline_) return;
  backend_.admission->CancelJob(*job_id_);
}

}  // namespace sparsed
