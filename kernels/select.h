// SPDX-License-Identifier: Apache-2.0
// From block scores to a bit-packed block mask, and what the mask keeps.
//
//   scores            [heads, query_blocks, key_blocks] fp32, higher = kept first; ties go to the
//                     lower index
//   generation_scores [heads, query_blocks, key_blocks - first_generation_block] fp32, only for
//                     top_ratio_compat
//   mask_words        [heads * query_blocks * ceil(key_blocks / 32)] int32, overwritten
//                     (block_mask.h)
// Key blocks before first_generation_block are the prompt's, the others the generation's.
// Throws c10::ValueError naming the argument.
#pragma once

#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace sparsed::kernels {

// Names of the rules in the operator's schema; one table per implementation, cpu/select.cc and
// reference/select.cc.
//   top_ratio         either part keeps its ceil(budget * n) best blocks, at least 1 (SparseD,
//                     Eq. 5-6)
//   top_ratio_compat  int(budget * n) + 1 best of *all* blocks, of which the prompt's stay; then as
//                     many, counted over the generation part, by generation_scores (the reference
//                     code's two passes)
//   top_k             the ceil(budget * n) best of all blocks, at least 1 (BA-Att, Eq. 15)
//   mass              the fewest blocks such that what is dropped sums to less than 1 - budget; at
//                     least the best one; scores of a query block sum to 1 (NABLA)
inline constexpr std::string_view kTopRatio = "top_ratio";
inline constexpr std::string_view kTopRatioCompat = "top_ratio_compat";
inline constexpr std::string_view kTopK = "top_k";
inline constexpr std::string_view kMass = "mass";

// All of them.
std::vector<std::string_view> SelectionRuleNames();

struct Selection {
  std::string_view rule;
  double budget = 1;                   // in (0, 1]; see the rule
  int64_t first_generation_block = 0;  // one of the key blocks
  // Then every query block gets its best dropped blocks back until what it keeps sums to this; 0 =
  // off. Needs scores that sum to 1.
  double min_mass = 0;
};

void SelectBlocks(const at::Tensor& mask_words, const at::Tensor& scores,
                  const at::Tensor& generation_scores, const Selection& selection);

// kept [heads] int64: set bits. retained [heads] fp64: attention mass on the kept blocks, mean over
// the row's real queries, so a short last query block weighs less.
//   mass [heads, query_blocks, key_blocks] fp32 from AttentionWithMass; tokens: the row's length
struct MaskStatistics {
  at::Tensor kept;
  at::Tensor retained;
};
MaskStatistics ComputeMaskStatistics(const at::Tensor& mask_words, const at::Tensor& mass,
                                     int64_t tokens, int64_t block_tokens);

// kept [heads] int64: set bits of a mask, where there is no mass to weigh.
at::Tensor CountKeptBlocks(const at::Tensor& mask_words, int64_t heads);

// Attention mass on the kept blocks for some queries only, where scores are estimates.
//   q [tokens, heads, head_dim], k [tokens, kv_heads, head_dim]: in the mask's order
//   queries [n] int64, positions in that order, on q's device -> [heads] fp64, mean over the
//   queries. A position outside the row: c10::ValueError on the CPU, NaN on CUDA, which does not
//   wait to see it.
// Cost: n / tokens of the scoring half of a dense attention.
at::Tensor SampleRetainedMass(const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& mask_words, const at::Tensor& queries,
                              int64_t block_tokens);

}  // namespace sparsed::kernels
