// SPDX-License-Identifier: Apache-2.0
// GenerationCall: what Generate and GenerateStream have in common, from a request's bytes to the
// log line at its end.
//
//   GenerationCall call(backend, context);
//   if (absl::Status status = call.Submit(bytes, options); !status.ok()) return Refuse(status);
//   while (auto event = call.TryTake()) …           // woken by call.SetWake
//   call.HangUp();                                  // the client is gone
//
// Submit belongs to the handler; then TryTake to one thread at a time, HangUp to any.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>

#include "server/mailbox.h"
#include "server/rpc/backend.h"
#include "sparsed/v1/generation.pb.h"

namespace sparsed {

enum class CallKind { kUnary, kStream };

class GenerationCall {
 public:
  GenerationCall(const Backend& backend, const grpc::CallbackServerContext& context);
  ~GenerationCall();  // returns when no wake is running any more
  GenerationCall(const GenerationCall&) = delete;
  GenerationCall& operator=(const GenerationCall&) = delete;

  // Parses and checks the request, reserves a slot, only then tokenises, and queues the job. After
  // an error the call is over, counted and logged.
  absl::Status Submit(const grpc::ByteBuffer& bytes, CallKind kind);

  // See Mailbox. Only after Submit returned OK.
  void SetWake(std::function<void()> wake) { mailbox_->SetWake(std::move(wake)); }
  std::optional<Event> TryTake() { return mailbox_->TryTake(); }

  // The event as the client reads it; for a FinishedEvent its status must be OK.
  absl::StatusOr<v1::GenerateEvent> MakeEvent(const Event& event);
  absl::StatusOr<v1::GenerateResponse> MakeFinalResponse(const FinishedEvent& event) const;

  // Once, when the FinishedEvent was taken: the log line.
  void LogFinished(const FinishedEvent& event, const absl::Status& status) const;

  // Cancels the job. A client whose deadline passed looks just the same; that job is left to the
  // step loop, which ends it with DEADLINE_EXCEEDED.
  void HangUp();

 private:
  absl::Status Queue(const v1::GenerateRequest& request, CallKind kind);
  absl::StatusOr<Request> Prepare(const v1::GenerateRequest& request, CallKind kind);
  void LogRefused(const absl::Status& status) const;

  const Backend backend_;
  const std::string peer_;
  const TimePoint arrival_;
  const std::optional<TimePoint> deadline_;
  const LiveCalls::Token live_;
  std::string request_id_;
  std::string preset_;
  v1::Resolved resolved_;
  std::shared_ptr<Mailbox> mailbox_;
  std::optional<JobId> job_id_;
  uint64_t next_sequence_ = 0;
};

}  // namespace sparsed
