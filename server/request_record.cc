// SPDX-License-Identifier: Apache-2.0
#include "server/request_record.h"

namespace sparsed {
namespace {

RequestState FinalState(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return RequestState::kFinished;
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnavailable:
      return RequestState::kCancelled;
    case absl::StatusCode::kDeadlineExceeded:
      return RequestState::kExpired;
    default:
      return RequestState::kFailed;
  }
}

// Whether attention of this step skipped the blocks that the mask does not keep.
bool UsesMask(StepPhase phase) {
  return phase == StepPhase::kSparse || phase == StepPhase::kRebuild;
}

double MeanDensity(const std::vector<HeadSparsity>& heads) {
  double sum = 0;
  for (const HeadSparsity& head : heads) sum += head.density;
  return sum / static_cast<double>(heads.size());
}

}  // namespace

StartedEvent RequestRecord::Start(RequestId engine_id, int64_t mask_bytes, TimePoint now) {
  move_error_.Update(MoveTo(RequestState::kRunning));
  engine_id_ = engine_id;
  sparsity_.mask_bytes = mask_bytes;
  timings_.queue_seconds = Seconds(now - job_.arrival);
  usage_.prompt_tokens = job_.request.canvas.prompt_length;
  return {.prompt_tokens = usage_.prompt_tokens,
          .total_steps = job_.request.policy.steps,
          .queue_seconds = timings_.queue_seconds};
}

ProgressEvent RequestRecord::Apply(const StepResult& result, TimePoint now) {
  ++usage_.steps;
  usage_.forward_passes += forwards_per_step();
  PhaseTime& phase = timings_.phase(result.phase);
  ++phase.steps;
  phase.seconds += result.step_seconds;
  timings_.mask_build_seconds += result.mask_build_seconds;
  NoteAttention(result);
  finish_reason_ = result.finish_reason;
  Commit(result.committed, now);
  return {.step = result.step + 1,
          .total_steps = result.total_steps,
          .phase = result.phase,
          .committed = result.committed,
          .provisional = result.provisional,
          .density = result.density,
          .retained_mass = result.retained_mass,
          .step_seconds = result.step_seconds};
}

FinishedEvent RequestRecord::Finish(absl::Status status, TimePoint now) {
  const RequestState final_state = FinalState(status.code());
  const bool started = state_ != RequestState::kQueued;
  if (!started) {
    timings_.queue_seconds = Seconds(now - job_.arrival);
    // The engine refused it: it has run, for no step at all.
    if (final_state == RequestState::kFailed) move_error_.Update(MoveTo(RequestState::kRunning));
  }
  move_error_.Update(MoveTo(final_state));
  timings_.total_seconds = Seconds(now - job_.arrival);
  usage_.prompt_tokens = job_.request.canvas.prompt_length;
  if (usage_.steps > 0) sparsity_.mean_density = density_sum_ / usage_.steps;
  return {.status = move_error_.ok() ? std::move(status) : move_error_,
          .finish_reason = finish_reason_,
          .canvas = std::move(job_.request.canvas),
          .usage = usage_,
          .timings = timings_,
          .sparsity = sparsity_};
}

void RequestRecord::NoteAttention(const StepResult& result) {
  density_sum_ += result.density;
  if (BuildsMask(result.phase)) has_mask_ = true;
  if (!result.heads.empty()) {
    sparsity_.heads = result.heads;
    sparsity_.mask_density = MeanDensity(result.heads);
  }
  if (UsesMask(result.phase)) sparsity_.mask_density = result.density;
  if (result.retained_mass) sparsity_.retained_mass = result.retained_mass;
  if (result.guard == GuardReason::kNone) return;
  sparsity_.guard = result.guard;
  has_mask_ = false;
}

int64_t RequestRecord::batch_tokens() const {
  return int64_t{job_.request.canvas.length()} * forwards_per_step();
}

bool RequestRecord::over() const {
  return state_ != RequestState::kQueued && state_ != RequestState::kRunning;
}

absl::Status RequestRecord::MoveTo(RequestState state) {
  absl::Status status = CheckMove(state_, state);
  state_ = state;
  return status;
}

void RequestRecord::Commit(const std::vector<TokenEdit>& edits, TimePoint now) {
  inter_commit_seconds_.reset();
  if (edits.empty()) return;
  Canvas& canvas = job_.request.canvas;
  for (const TokenEdit& edit : edits) {
    const auto position = static_cast<size_t>(edit.position);
    canvas.tokens.at(position) = edit.token;
    canvas.open.at(position) = 0;
  }
  usage_.committed_tokens += static_cast<int32_t>(edits.size());
  if (last_commit_) {
    inter_commit_seconds_ = Seconds(now - *last_commit_);
  } else {
    timings_.first_commit_seconds = Seconds(now - job_.arrival);
  }
  last_commit_ = now;
}

}  // namespace sparsed
