// SPDX-License-Identifier: Apache-2.0
#include "engine/attention/resolve.h"

#include <algorithm>

#include "kernels/block_mask.h"

namespace sparsed {
namespace {

int32_t DenseSteps(const AttentionPlan& plan, int32_t steps) {
  if (plan.score == ScoreRule::kNone) return steps;
  const auto skipped = static_cast<int32_t>(static_cast<double>(steps) * plan.skip);
  const int32_t dense =
      plan.select == SelectRule::kTopRatioCompat ? skipped + 2 : std::max(1, skipped);
  return std::min(dense, steps);
}

}  // namespace

StepPhase AttentionSchedule::PhaseOf(int32_t step) const {
  if (step >= dense_steps) return StepPhase::kSparse;
  const bool builds = mask_bytes > 0 && step == dense_steps - 1;
  return builds ? StepPhase::kDenseAndBuild : StepPhase::kDense;
}

AttentionSchedule ResolveSchedule(const AttentionPlan& plan, const Canvas& canvas, int32_t steps,
                                  const ModelInfo& model) {
  AttentionSchedule schedule;
  schedule.select = plan.select;
  schedule.ratio = plan.ratio;
  schedule.dense_steps = DenseSteps(plan, steps);
  schedule.block_tokens = plan.block_tokens;
  schedule.blocks = static_cast<int32_t>(kernels::BlockCount(canvas.length(), plan.block_tokens));
  const auto prompt_blocks =
      static_cast<int32_t>(kernels::BlockCount(canvas.prompt_length, plan.block_tokens));
  schedule.first_generation_block = std::min(prompt_blocks, schedule.blocks - 1);
  schedule.words_per_layer = kernels::MaskWords(model.heads, canvas.length(), plan.block_tokens);
  if (schedule.dense_steps < steps) {
    schedule.mask_bytes = schedule.words_per_layer * model.layers * 4;
  }
  return schedule;
}

}  // namespace sparsed
