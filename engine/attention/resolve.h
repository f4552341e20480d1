// SPDX-License-Identifier: Apache-2.0
// AttentionSchedule: an AttentionPlan made concrete for one canvas and step count: which phase each
// step runs, and how much of the mask arena a lane's masks take.
//
// The first `dense_steps` steps are dense (SparseD, Algorithm 1; sparsed_reference.md 1.2): int(steps
// * skip), one more than none if the score needs dense attention; the reference code has two more. A
// mask is built in step first_build and then every refresh_every steps. Pooled attention mass is a
// by-product of dense attention, so its builds are dense steps; other scores need no dense step and
// are used in the step that makes them.
#pragma once

#include <cstdint>

#include "engine/types.h"

namespace sparsed {

struct AttentionSchedule {
  AttentionPlan plan;
  int32_t steps = 0;
  int32_t dense_steps = 0;  // == steps when no step is sparse
  int32_t first_build = 0;
  int32_t length = 0;  // tokens of the canvas
  int32_t blocks = 0;  // query blocks = key blocks
  int32_t layers = 0;
  // First key block of the generation part: min(ceil(prompt / block_tokens), blocks - 1). A block
  // with both prompt and generated tokens counts as prompt.
  int32_t first_generation_block = 0;
  int32_t first_open_block = 0;  // first block that holds a generated position
  // A lane's part of the arena, layer by layer: mask words, then the token orders of a reordered
  // plan, which are part of what a mask means.
  int64_t mask_words = 0;         // of one layer's mask
  int64_t query_order_words = 0;  // heads * tokens, or 0 = the canvas's order
  int64_t key_order_words = 0;    // kv_heads * tokens, or 0
  int64_t mask_bytes = 0;         // all layers of one canvas; 0 when no step is sparse

  StepPhase PhaseOf(int32_t step) const;
  int64_t words_per_layer() const { return mask_words + query_order_words + key_order_words; }

  // Whether a mask needs all layers' scores, so that it is made after the last layer only.
  bool builds_after_last_layer() const { return plan.relevant_share < 1; }

  // The smallest density that the plan can give on this canvas.
  double LeastDensity() const;

  // Blocks that a query block keeps at least, where it keeps its selection.
  int64_t LeastKeptBlocks() const;

  // Why the plan's sparse steps run dense; they do unless this is kNone.
  GuardReason guard = GuardReason::kNone;
  void RunDense(GuardReason reason);
};

AttentionSchedule ResolveSchedule(const AttentionPlan& plan, const Canvas& canvas, int32_t steps,
                                  const ModelInfo& model);

}  // namespace sparsed
