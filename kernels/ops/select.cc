// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/select.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <torch/library.h>

#include "kernels/block_mask.h"
#include "kernels/cpu/cpu.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/operator.h"

namespace sparsed::kernels {

using at::Tensor;

namespace ops {
namespace {

void RequireKnownRule(std::string_view rule) {
  const std::vector<std::string_view> names = SelectionRuleNames();
  TORCH_CHECK_VALUE(std::find(names.begin(), names.end(), rule) != names.end(), "sparsed: rule is ",
                    rule, ", must be one of ", c10::Join(", ", names));
}

void CheckGenerationScores(const Tensor& scores, const Tensor& generation_scores,
                           int64_t generation_blocks) {
  Require(generation_scores.defined(), "generation_scores", "is needed by rule top_ratio_compat");
  RequireFloat(generation_scores, 3, "generation_scores");
  RequireSameDevice(scores, generation_scores, "generation_scores");
  TORCH_CHECK_VALUE(generation_scores.is_contiguous() &&
                        generation_scores.size(0) == scores.size(0) &&
                        generation_scores.size(1) == scores.size(1) &&
                        generation_scores.size(2) == generation_blocks,
                    "sparsed: generation_scores is ", generation_scores.sizes(),
                    ", must be contiguous [", scores.size(0), ", ", scores.size(1), ", ",
                    generation_blocks, "]: heads, query blocks, generation key blocks");
}

}  // namespace

void CheckSelectBlocks(const Tensor& mask_words, const Tensor& scores,
                       const Tensor& generation_scores, const Selection& selection) {
  RequireKnownRule(selection.rule);
  RequireFloat(scores, 3, "scores");
  Require(scores.numel() > 0 && scores.is_contiguous(), "scores",
          "must be contiguous and not empty");
  const int64_t key_blocks = scores.size(2);
  RequireRange(selection.first_generation_block, 0, key_blocks - 1, "first_generation_block");
  TORCH_CHECK_VALUE(selection.budget > 0 && selection.budget <= 1, "sparsed: budget is ",
                    selection.budget, ", must be in (0, 1]");
  TORCH_CHECK_VALUE(selection.min_mass >= 0 && selection.min_mass <= 1, "sparsed: min_mass is ",
                    selection.min_mass, ", must be in [0, 1]");
  RequireMask(mask_words, scores.size(0), scores.size(1), key_blocks);
  RequireSameDevice(scores, mask_words, "mask_words");
  if (selection.rule == kTopRatioCompat) {
    CheckGenerationScores(scores, generation_scores, key_blocks - selection.first_generation_block);
  }
}

void CheckMaskStatistics(const Tensor& mask_words, const Tensor& mass, int64_t tokens,
                         int64_t block_tokens) {
  RequireFloat(mass, 3, "mass");
  RequireBlockTokens(block_tokens);
  RequireRange(tokens, 1, INT64_MAX - block_tokens, "tokens");
  const int64_t blocks = BlockCount(tokens, block_tokens);
  TORCH_CHECK_VALUE(mass.is_contiguous() && mass.size(1) == blocks && mass.size(2) == blocks,
                    "sparsed: mass is ", mass.sizes(), ", must be contiguous [heads, ", blocks,
                    ", ", blocks, "] for ", tokens, " tokens");
  RequireMask(mask_words, mass.size(0), blocks, blocks);
  RequireSameDevice(mass, mask_words, "mask_words");
}

void CheckCountKeptBlocks(const Tensor& mask_words, int64_t heads) {
  Require(mask_words.scalar_type() == at::kInt && mask_words.is_contiguous(), "mask_words",
          "must be contiguous int32");
  TORCH_CHECK_VALUE(heads > 0 && mask_words.numel() % heads == 0, "sparsed: heads is ", heads,
                    ", must divide the ", mask_words.numel(), " words of mask_words");
}

void CheckSampleRetainedMass(const Tensor& q, const Tensor& k, const Tensor& mask_words,
                             const Tensor& queries, int64_t block_tokens) {
  RequireActivations(q, 3, "q");
  RequireActivations(k, 3, "k");
  RequireMatchingKeys(q, k);
  RequireBlockTokens(block_tokens);
  const int64_t blocks = BlockCount(q.size(0), block_tokens);
  RequireMask(mask_words, q.size(1), blocks, blocks);
  RequireSameDevice(q, mask_words, "mask_words");
  Require(queries.dim() == 1 && queries.numel() > 0 && queries.scalar_type() == at::kLong,
          "queries", "must be int64, one-dimensional and not empty");
  RequireSameDevice(q, queries, "queries");
}

TORCH_LIBRARY_FRAGMENT(sparsed, m) {
  m.def(
      "select_blocks(Tensor(a!) mask_words, Tensor scores, Tensor? generation_scores, str rule, "
      "float budget, SymInt first_generation_block, float min_mass=0.) -> ()");
  m.def(
      "mask_statistics(Tensor mask_words, Tensor mass, SymInt tokens, int block_tokens) "
      "-> (Tensor kept, Tensor retained)");
  m.def("count_kept_blocks(Tensor mask_words, int heads) -> Tensor");
  m.def(
      "sample_retained_mass(Tensor q, Tensor k, Tensor mask_words, Tensor queries, "
      "int block_tokens) -> Tensor");
}

}  // namespace ops

void SelectBlocks(const Tensor& mask_words, const Tensor& scores, const Tensor& generation_scores,
                  const Selection& selection) {
  static const auto op =
      ops::FindOperator<decltype(ops::SelectBlocksOp<cpu::SelectBlocks>)>("sparsed::select_blocks");
  const auto optional_scores = generation_scores.defined()
                                   ? std::optional<Tensor>(generation_scores)
                                   : std::optional<Tensor>();
  op.call(mask_words, scores, optional_scores,
          c10::string_view(selection.rule.data(), selection.rule.size()), selection.budget,
          selection.first_generation_block, selection.min_mass);
}

MaskStatistics ComputeMaskStatistics(const Tensor& mask_words, const Tensor& mass, int64_t tokens,
                                     int64_t block_tokens) {
  static const auto op =
      ops::FindOperator<decltype(ops::MaskStatisticsOp<cpu::ComputeMaskStatistics>)>(
          "sparsed::mask_statistics");
  auto [kept, retained] = op.call(mask_words, mass, tokens, block_tokens);
  return {kept, retained};
}

Tensor CountKeptBlocks(const Tensor& mask_words, int64_t heads) {
  static const auto op = ops::FindOperator<decltype(ops::CountKeptBlocksOp<cpu::CountKeptBlocks>)>(
      "sparsed::count_kept_blocks");
  return op.call(mask_words, heads);
}

Tensor SampleRetainedMass(const Tensor& q, const Tensor& k, const Tensor& mask_words,
                          const Tensor& queries, int64_t block_tokens) {
  static const auto op =
      ops::FindOperator<decltype(ops::SampleRetainedMassOp<cpu::SampleRetainedMass>)>(
          "sparsed::sample_retained_mass");
  return op.call(q, k, mask_words, queries, block_tokens);
}

}  // namespace sparsed::kernels
