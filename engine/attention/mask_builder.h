// SPDX-License-Identifier: Apache-2.0
// From one layer's queries and keys to a lane's block mask: score, select, add the prior, and say
// what the mask keeps. The pipeline of an AttentionPlan, after its reordering.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/attention/pattern.h"
#include "engine/attention/resolve.h"
#include "kernels/select.h"

namespace sparsed {

// One lane in one layer; tokens in the order in which the mask cuts them into blocks.
struct MaskInput {
  // Not read with ScoreRule::kPooledMass but by SelectRule::kTopRatioCompat.
  at::Tensor q;     // [tokens, heads, head_dim]
  at::Tensor k;     // [tokens, kv_heads, head_dim]
  at::Tensor mass;  // [heads, blocks, blocks] of dense attention; only for ScoreRule::kPooledMass
  // [blocks] bool: query blocks that keep their selection; undefined: all do.
  at::Tensor selecting;
};

// Overwrites `words` (the layer's mask in the arena, [schedule.mask_words] int32). The retained mass
// is exact where the scores are pooled mass, else measured on a sample of queries.
//   compat_score_scale: logit scale with which the family's reference code scores blocks
//   (SelectRule::kTopRatioCompat)
kernels::MaskStatistics BuildMask(const AttentionSchedule& schedule,
                                  const AttentionPattern& pattern, const MaskInput& input,
                                  double compat_score_scale, const at::Tensor& words);

}  // namespace sparsed
