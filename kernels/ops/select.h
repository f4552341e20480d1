// SPDX-License-Identifier: Apache-2.0
// Adaptors of the operators of kernels/select.h; see operator.h.
#pragma once

#include <optional>
#include <string_view>
#include <tuple>

#include <ATen/core/Tensor.h>

#include "kernels/select.h"

namespace sparsed::kernels::ops {

void CheckSelectBlocks(const at::Tensor& mask_words, const at::Tensor& scores,
                       const at::Tensor& generation_scores, const Selection& selection);
void CheckMaskStatistics(const at::Tensor& mask_words, const at::Tensor& mass, int64_t tokens,
                         int64_t block_tokens);
void CheckCountKeptBlocks(const at::Tensor& mask_words, int64_t heads);
void CheckSampleRetainedMass(const at::Tensor& q, const at::Tensor& k, const at::Tensor& mask_words,
                             const at::Tensor& queries, int64_t block_tokens);

template <auto kImplementation>
// NOLINTNEXTLINE(readability-function-size): one parameter per argument of the operator's schema
void SelectBlocksOp(const at::Tensor& mask_words, const at::Tensor& scores,
                    const std::optional<at::Tensor>& generation_scores, c10::string_view rule,
                    double budget, int64_t first_generation_block, double min_mass) {
  const Selection selection{std::string_view(rule.data(), rule.size()), budget,
                            first_generation_block, min_mass};
  const at::Tensor generation = selection.rule == kTopRatioCompat  // no other rule reads them
                                    ? generation_scores.value_or(at::Tensor())
                                    : at::Tensor();
  CheckSelectBlocks(mask_words, scores, generation, selection);
  kImplementation(mask_words, scores, generation, selection);
}

template <auto kImplementation>
std::tuple<at::Tensor, at::Tensor> MaskStatisticsOp(const at::Tensor& mask_words,
                                                    const at::Tensor& mass, int64_t tokens,
                                                    int64_t block_tokens) {
  CheckMaskStatistics(mask_words, mass, tokens, block_tokens);
  MaskStatistics result = kImplementation(mask_words, mass, tokens, block_tokens);
  return {result.kept, result.retained};
}

template <auto kImplementation>
at::Tensor CountKeptBlocksOp(const at::Tensor& mask_words, int64_t heads) {
  CheckCountKeptBlocks(mask_words, heads);
  return kImplementation(mask_words, heads);
}

template <auto kImplementation>
at::Tensor SampleRetainedMassOp(const at::Tensor& q, const at::Tensor& k,
                                const at::Tensor& mask_words, const at::Tensor& queries,
                                int64_t block_tokens) {
  CheckSampleRetainedMass(q, k, mask_words, queries, block_tokens);
  return kImplementation(q, k, mask_words, queries, block_tokens);
}

}  // namespace sparsed::kernels::ops
