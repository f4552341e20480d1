// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/respond.h"

#include <utility>

#include "engine/base/status_macros.h"

namespace sparsed {
namespace {

v1::Phase ToProto(StepPhase phase) {
  switch (phase) {
    case StepPhase::kDense:
      return v1::PHASE_DENSE;
    case StepPhase::kDenseAndBuild:
      return v1::PHASE_BUILD;
    case StepPhase::kSparse:
      return v1::PHASE_SPARSE;
    case StepPhase::kRebuild:
      return v1::PHASE_REBUILD;
  }
  return v1::PHASE_UNSPECIFIED;
}

v1::FinishReason ToProto(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case FinishReason::kEndOfText:
      return v1::FINISH_REASON_END_OF_TEXT;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

void AddEdit(const TokenEdit& edit, bool committed, const Tokenizer& tokenizer,
             v1::Progress* progress) {
  v1::Edit& added = *progress->add_edits();
  added.set_position(static_cast<uint32_t>(edit.position));
  added.set_token(static_cast<uint32_t>(edit.token));
  added.set_piece(tokenizer.TokenBytes(edit.token));
  added.set_committed(committed);
  added.set_confidence(edit.confidence);
}

v1::Usage MakeUsage(const Usage& usage, size_t generated_tokens) {
  v1::Usage made;
  made.set_prompt_tokens(static_cast<uint32_t>(usage.prompt_tokens));
  made.set_generated_tokens(static_cast<uint32_t>(generated_tokens));
  made.set_steps(static_cast<uint32_t>(usage.steps));
  made.set_forward_passes(static_cast<uint32_t>(usage.forward_passes));
  if (usage.forward_passes > 0) {
    made.set_tokens_per_forward(static_cast<double>(usage.committed_tokens) / usage.forward_passes);
  }
  return made;
}

v1::Timings MakeTimings(const Timings& timings) {
  v1::Timings made;
  made.set_queue_seconds(timings.queue_seconds);
  made.set_total_seconds(timings.total_seconds);
  made.set_first_commit_seconds(timings.first_commit_seconds.value_or(0));
  made.set_mask_build_seconds(timings.mask_build_seconds);
  for (const StepPhase phase : kStepPhases) {
    const PhaseTime& time = timings.phase(phase);
    if (time.steps == 0) continue;
    v1::PhaseTime& added = *made.add_phases();
    added.set_phase(ToProto(phase));
    added.set_steps(static_cast<uint32_t>(time.steps));
    added.set_seconds(time.seconds);
  }
  return made;
}

// The means over the heads of one layer.
v1::LayerSparsity MakeLayer(absl::Span<const HeadSparsity> heads) {
  double density = 0;
  double retained_mass = 0;
  for (const HeadSparsity& head : heads) {
    density += head.density;
    retained_mass += head.retained_mass;
  }
  v1::LayerSparsity layer;
  layer.set_density(density / static_cast<double>(heads.size()));
  layer.set_retained_mass(retained_mass / static_cast<double>(heads.size()));
  return layer;
}

v1::Sparsity MakeSparsity(const SparsitySummary& sparsity, int32_t heads_per_layer) {
  v1::Sparsity made;
  if (sparsity.mask_density) made.set_density(*sparsity.mask_density);
  if (sparsity.retained_mass) made.set_retained_mass(*sparsity.retained_mass);
  made.set_mean_density(sparsity.mean_density);
  made.set_mask_bytes(static_cast<uint64_t>(sparsity.mask_bytes));
  if (sparsity.guard != GuardReason::kNone) made.set_guard(GuardReasonName(sparsity.guard));
  const auto heads = static_cast<size_t>(heads_per_layer);
  for (size_t i = 0; heads > 0 && i + heads <= sparsity.heads.size(); i += heads) {
    *made.add_layers() = MakeLayer(absl::MakeConstSpan(sparsity.heads).subspan(i, heads));
  }
  return made;
}

}  // namespace

v1::Started MakeStarted(const StartedEvent& event, const v1::Resolved& resolved) {
  v1::Started started;
  *started.mutable_resolved() = resolved;
  started.set_prompt_tokens(static_cast<uint32_t>(event.prompt_tokens));
  started.set_queue_seconds(event.queue_seconds);
  started.set_steps(static_cast<uint32_t>(event.total_steps));
  return started;
}

v1::Progress MakeProgress(const ProgressEvent& event, const Tokenizer& tokenizer) {
  v1::Progress progress;
  progress.set_step(static_cast<uint32_t>(event.step));
  progress.set_steps(static_cast<uint32_t>(event.total_steps));
  progress.set_phase(ToProto(event.phase));
  for (const TokenEdit& edit : event.committed) AddEdit(edit, true, tokenizer, &progress);
  for (const TokenEdit& edit : event.provisional) AddEdit(edit, false, tokenizer, &progress);
  progress.set_density(event.density);
  if (event.retained_mass) progress.set_retained_mass(*event.retained_mass);
  progress.set_step_seconds(event.step_seconds);
  return progress;
}

absl::Span<const int32_t> GeneratedTokens(const Canvas& canvas, const ServedModel& model) {
  const auto begin = static_cast<size_t>(canvas.prompt_length);
  size_t end = begin;
  while (end < canvas.tokens.size() && !model.IsEndToken(canvas.tokens[end])) ++end;
  return absl::MakeConstSpan(canvas.tokens).subspan(begin, end - begin);
}

absl::StatusOr<v1::GenerateResponse> MakeResponse(const FinishedEvent& event,
                                                  const ServedModel& model) {
  v1::GenerateResponse response;
  const absl::Span<const int32_t> generated = GeneratedTokens(event.canvas, model);
  ASSIGN_OR_RETURN(std::string text, DecodeText(model, generated, /*skip_special=*/true));
  response.set_text(std::move(text));
  const auto begin = static_cast<size_t>(event.canvas.prompt_length);
  for (size_t i = begin; i < event.canvas.tokens.size(); ++i) {
    response.add_token_ids(static_cast<uint32_t>(event.canvas.tokens[i]));
  }
  response.set_finish_reason(ToProto(event.finish_reason));
  *response.mutable_usage() = MakeUsage(event.usage, generated.size());
  *response.mutable_timings() = MakeTimings(event.timings);
  *response.mutable_sparsity() = MakeSparsity(event.sparsity, model.info.heads);
  return response;
}

}  // namespace sparsed
