// SPDX-License-Identifier: Apache-2.0
// StreamReactor: one GenerateStream call. Moves events from the mailbox to the wire, one write at a
// time; while a write is under way the mailbox merges what arrives.
// Owns itself from Start to OnDone. Threads: whoever posts, and gRPC's; mutex_ orders them.
#pragma once

#include <memory>

#include <absl/status/status.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "engine/base/mutex.h"
#include "server/rpc/generation_call.h"

namespace sparsed {

class StreamReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                            public std::enable_shared_from_this<StreamReactor> {
 public:
  static grpc::ServerWriteReactor<grpc::ByteBuffer>* Start(
      const Backend& backend, const grpc::CallbackServerContext& context,
      const grpc::ByteBuffer& request);

 private:
  StreamReactor(const Backend& backend, const grpc::CallbackServerContext& context)
      : call_(backend, context) {}

  void Pump() ABSL_LOCKS_EXCLUDED(mutex_);
  void Send(const Event& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Complete(const FinishedEvent& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // buffer_ = the event's bytes.
  absl::Status Fill(const Event& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void OnWriteDone(bool ok) override;
  void OnCancel() override { call_.HangUp(); }
  void OnDone() override { self_ = nullptr; }

  GenerationCall call_;
  std::shared_ptr<StreamReactor> self_;
  Mutex mutex_;
  grpc::ByteBuffer buffer_ ABSL_GUARDED_BY(mutex_);  // of the write under way
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool complete_ ABSL_GUARDED_BY(mutex_) = false;
  // Not OK: nothing more can be written; what is left is to wait for the job's end.
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsed
