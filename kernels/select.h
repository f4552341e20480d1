// SPDX-License-Identifier: Apache-2.0
// From block scores to a bit-packed block mask, and what the mask keeps.
//
//   scores            [heads, query_blocks, key_blocks]  fp32, higher = kept first; ties go to the
//   lower index generation_scores [heads, query_blocks, key_blocks - first_generation_block] fp32,
//   only for kTopRatioCompat mask_words        [heads * query_blocks * ceil(key_blocks / 32)]
//   int32, overwritten (block_mask.h)
// Key blocks before first_generation_block are the prompt's, the others the generation's.
// Throws c10::ValueError naming the argument.
#pragma once

#include <string_view>

#include <ATen/core/Tensor.h>

namespace sparsed::kernels {

// Names of the rules in the operator's schema; one list, see select.cc.
//   top_ratio:        either part keeps its ceil(ratio * n) best blocks, at least 1 (SparseD, Eq.
//   5-6) top_ratio_compat: int(ratio * n) + 1 best of *all* blocks, of which the prompt's stay;
//   then as many, counted
//                     over the generation part, by generation_scores (the reference code's two
//                     passes)
inline constexpr std::string_view kTopRatio = "top_ratio";
inline constexpr std::string_view kTopRatioCompat = "top_ratio_compat";

void SelectBlocks(const at::Tensor& mask_words, const at::Tensor& scores,
                  const at::Tensor& generation_scores, std::string_view rule, double ratio,
                  int64_t first_generation_block);

// kept [heads] int64: set bits. retained [heads] fp64: attention mass on the kept blocks, mean over
// the row's real queries, so a short last query block weighs less.
//   mass [heads, query_blocks, key_blocks] fp32 from AttentionWithMass; tokens: the row's length
struct MaskStatistics {
  at::Tensor kept;
  at::Tensor retained;
};
MaskStatistics ComputeMaskStatistics(const at::Tensor& mask_words, const at::Tensor& mass,
                                     int64_t tokens, int64_t block_tokens);

}  // namespace sparsed::kernels
