// SPDX-License-Identifier: Apache-2.0
// RequestRecord: everything the step loop knows about one request: its canvas, state, times,
// counts.
//
//   RequestRecord record(id, std::move(job));
//   mailbox->PostStarted(record.Start(engine_id, mask_bytes, clock->Now()));
//   mailbox->PostProgress(record.Apply(result, clock->Now()));
//   mailbox->PostFinished(record.Finish(absl::OkStatus(), clock->Now()));
//
// Holds the canvas by applying committed edits, so that the last event can carry it whole.
// Thread: step loop only. Owns the job.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <absl/status/status.h>

#include "engine/types.h"
#include "server/clock.h"
#include "server/events.h"
#include "server/job.h"
#include "server/request_state.h"

namespace sparsed {

class RequestRecord {
 public:
  RequestRecord(JobId id, Job job) : id_(id), job_(std::move(job)) {}

  // The request has a row in the engine, which holds `mask_bytes`.
  StartedEvent Start(RequestId engine_id, int64_t mask_bytes, TimePoint now);

  // A step that went well.
  ProgressEvent Apply(const StepResult& result, TimePoint now);

  // The request is over, with the final state that the status code stands for. Takes the canvas
  // out; nothing may follow. An illegal move (request_state.h) replaces the status.
  FinishedEvent Finish(absl::Status status, TimePoint now);

  JobId id() const { return id_; }
  const Job& job() const { return job_; }
  RequestId engine_id() const { return engine_id_; }
  RequestState state() const { return state_; }
  bool over() const;  // Finish was called
  // Whether the engine keeps a mask for later steps.
  bool has_mask() const { return has_mask_; }
  const SparsitySummary& sparsity() const { return sparsity_; }
  int32_t forwards_per_step() const { return job_.request.policy.cfg_scale > 0 ? 2 : 1; }
  // Share of a batch's token budget that a step of this request uses.
  int64_t batch_tokens() const;
  // Time since the commit before, if the last step committed something and was not the first to.
  std::optional<double> inter_commit_seconds() const { return inter_commit_seconds_; }
  const Usage& usage() const { return usage_; }
  const Timings& timings() const { return timings_; }

 private:
  absl::Status MoveTo(RequestState state);
  void NoteAttention(const StepResult& result);
  void Commit(const std::vector<TokenEdit>& edits, TimePoint now);

  const JobId id_;
  Job job_;
  RequestState state_ = RequestState::kQueued;
  absl::Status move_error_;  // the first illegal move; replaces the final status
  RequestId engine_id_ = 0;
  FinishReason finish_reason_ = FinishReason::kLength;
  Usage usage_;
  Timings timings_;
  SparsitySummary sparsity_;
  double density_sum_ = 0;
  bool has_mask_ = false;
  std::optional<TimePoint> last_commit_;
  std::optional<double> inter_commit_seconds_;
};

}  // namespace sparsed
