// SPDX-License-Identifier: Apache-2.0
#include "engine/attention/resolve.h"

#include <algorithm>
#include <cmath>

#include "kernels/block_mask.h"

namespace sparsed {
namespace {

// Whether a mask can only be built where all attention is computed.
bool BuildsDense(const AttentionPlan& plan) { return plan.score == ScoreRule::kPooledMass; }

int32_t DenseSteps(const AttentionPlan& plan, int32_t steps) {
  if (!plan.sparse()) return steps;
  int32_t dense = static_cast<int32_t>(static_cast<double>(steps) * plan.skip);
  if (plan.select == SelectRule::kTopRatioCompat) {
    dense += 2;
  } else if (BuildsDense(plan)) {
    dense = std::max(1, dense);
  }
  return std::min(dense, steps);
}

// The last dense step, so that the mask is there when sparse steps begin; but a mask that is made
// anew in every step is not needed before the first of them.
int32_t FirstBuild(const AttentionPlan& plan, int32_t dense_steps) {
  if (dense_steps == 0 || (plan.refresh_every == 1 && !BuildsDense(plan))) return dense_steps;
  return dense_steps - 1;
}

// Blocks that top_ratio keeps of a part of n blocks; also top_k's of all.
int64_t RatioCount(double ratio, int64_t n) {
  if (n == 0) return 0;
  return std::clamp<int64_t>(static_cast<int64_t>(std::ceil(ratio * static_cast<double>(n))), 1, n);
}

}  // namespace

StepPhase AttentionSchedule::PhaseOf(int32_t step) const {
  const bool dense = step < dense_steps;
  if (mask_bytes == 0) return StepPhase::kDense;
  const int32_t since = step - first_build;
  const bool first = since == 0;
  const bool refresh = since > 0 && plan.refresh_every > 0 && since % plan.refresh_every == 0;
  if (!first && !refresh) return dense ? StepPhase::kDense : StepPhase::kSparse;
  if (dense) return StepPhase::kDenseAndBuild;
  if (!BuildsDense(plan)) return StepPhase::kRebuild;
  // A mask that no later step would use is not worth a dense step.
  return step + 1 < steps ? StepPhase::kDenseAndBuild : StepPhase::kSparse;
}

int64_t AttentionSchedule::LeastKeptBlocks() const {
  switch (plan.select) {
    case SelectRule::kTopRatio:
      return RatioCount(plan.ratio, first_generation_block) +
             RatioCount(plan.ratio, blocks - first_generation_block);
    case SelectRule::kTopK:
      return RatioCount(plan.ratio, blocks);
    case SelectRule::kNone:
    case SelectRule::kTopRatioCompat:
    case SelectRule::kMass:
      break;
  }
  return 1;
}

double AttentionSchedule::LeastDensity() const {
  const int64_t selecting = plan.relevant_share < 1 ? blocks - first_open_block : blocks;
  const int64_t kept = selecting * LeastKeptBlocks() + (blocks - selecting);
  return static_cast<double>(kept) / (static_cast<double>(blocks) * blocks);
}

void AttentionSchedule::RunDense(GuardReason reason) {
  guard = reason;
  dense_steps = steps;
  mask_bytes = 0;
}

AttentionSchedule ResolveSchedule(const AttentionPlan& plan, const Canvas& canvas, int32_t steps,
                                  const ModelInfo& model) {
  AttentionSchedule schedule;
  schedule.plan = plan;
  schedule.steps = steps;
  schedule.dense_steps = DenseSteps(plan, steps);
  schedule.first_build = FirstBuild(plan, schedule.dense_steps);
  schedule.length = canvas.length();
  schedule.blocks = static_cast<int32_t>(kernels::BlockCount(canvas.length(), plan.block_tokens));
  schedule.layers = model.layers;
  schedule.first_open_block = canvas.prompt_length / plan.block_tokens;
  const auto prompt_blocks =
      static_cast<int32_t>(kernels::BlockCount(canvas.prompt_length, plan.block_tokens));
  schedule.first_generation_block = std::min(prompt_blocks, schedule.blocks - 1);
  if (schedule.dense_steps == steps) return schedule;

  const int64_t length = schedule.length;
  schedule.mask_words = kernels::MaskWords(model.heads, length, plan.block_tokens);
  const bool sorts_queries = plan.reorder == ReorderRule::kNormQK;
  const bool sorts_keys = sorts_queries || plan.reorder == ReorderRule::kNormK;
  if (sorts_queries) schedule.query_order_words = model.heads * length;
  if (sorts_keys) schedule.key_order_words = model.kv_heads * length;
  schedule.mask_bytes = schedule.words_per_layer() * model.layers * 4;
  return schedule;
}

}  // namespace sparsed
