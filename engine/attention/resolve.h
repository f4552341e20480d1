// SPDX-License-Identifier: Apache-2.0
// AttentionSchedule: an AttentionPlan made concrete for one canvas and step count: which phase each
// step runs, and the geometry of the block mask. Schedule (SparseD, Algorithm 1;
// sparsed_reference.md 1.2): `dense_steps` first steps are dense, the last of them builds the mask.
// Paper: max(1, int(steps * skip)); reference code: int(steps * skip) + 2.
#pragma once

#include <cstdint>

#include "engine/types.h"

namespace sparsed {

struct AttentionSchedule {
  SelectRule select = SelectRule::kAll;
  double ratio = 1;
  int32_t dense_steps = 0;  // == steps when no step is sparse
  int32_t block_tokens = 128;
  int32_t blocks = 0;  // query blocks = key blocks
  // First key block of the generation part: min(ceil(prompt / block_tokens), blocks - 1). A block
  // with both prompt and generated tokens counts as prompt.
  int32_t first_generation_block = 0;
  int64_t words_per_layer = 0;  // of one layer's mask
  int64_t mask_bytes = 0;       // all layers of one canvas; 0 when no step is sparse

  StepPhase PhaseOf(int32_t step) const;
};

AttentionSchedule ResolveSchedule(const AttentionPlan& plan, const Canvas& canvas, int32_t steps,
                                  const ModelInfo& model);

}  // namespace sparsed
