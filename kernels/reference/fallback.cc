// SPDX-License-Identifier: Apache-2.0
// Every operator on every device that has no kernels of its own: the references, under Torch's
// alias key for "all backends". A kernel that a device registers under its own key (CPU, CUDA)
// goes first, whichever library is loaded first, so this list never has to shrink. Correct and
// slow: attention holds one head's [tokens, tokens] weights at a time.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "kernels/block_mask.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/fused.h"
#include "kernels/ops/reorder.h"
#include "kernels/ops/score.h"
#include "kernels/ops/select.h"
#include "kernels/reference/reference.h"

namespace sparsed::kernels {
namespace {

using at::Tensor;

// References return bool masks and new tensors where the contracts write into the caller's.

void SelectBlocksInto(const Tensor& mask_words, const Tensor& scores,
                      const Tensor& generation_scores, const Selection& selection) {
  const Tensor keep = reference::SelectBlocks(scores, generation_scores, selection);
  mask_words.copy_(reference::PackMask(keep).view_as(mask_words));
}

Tensor Unpacked(const Tensor& mask_words, int64_t heads, int64_t blocks) {
  return reference::UnpackMask(mask_words, heads, blocks, blocks);
}

MaskStatistics MaskStatisticsOfWords(const Tensor& mask_words, const Tensor& mass, int64_t tokens,
                                     int64_t block_tokens) {
  return reference::ComputeMaskStatistics(Unpacked(mask_words, mass.size(0), mass.size(1)), mass,
                                          tokens, block_tokens);
}

Tensor CountKeptBits(const Tensor& mask_words, int64_t heads) {
  const Tensor bits =
      reference::UnpackMask(mask_words.flatten(), heads, 1, mask_words.numel() / heads * 32);
  return bits.sum({1, 2});
}

Tensor SampleRetainedMassOfWords(const Tensor& q, const Tensor& k, const Tensor& mask_words,
                                 const Tensor& queries, int64_t block_tokens) {
  const int64_t blocks = BlockCount(q.size(0), block_tokens);
  return reference::SampleRetainedMass(q, k, Unpacked(mask_words, q.size(1), blocks), queries,
                                       block_tokens);
}

void GatherRowsInto(const Tensor& out, const Tensor& x, const Tensor& order) {
  out.copy_(reference::GatherRows(x, order));
}

void ScatterRowsInto(const Tensor& out, const Tensor& x, const Tensor& order) {
  out.copy_(reference::ScatterRows(x, order));
}

void RopeInPlace(const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& row_offsets) {
  x.copy_(reference::Rope(x, cos, sin, row_offsets));
}

}  // namespace

TORCH_LIBRARY_IMPL(sparsed, CompositeExplicitAutograd, m) {
  m.impl("attention", ops::AttentionOp<reference::Attention>);
  m.impl("attention_with_mass", ops::AttentionWithMassOp<reference::AttentionWithMass>);
  m.impl("pooled_mass", ops::PooledMassOp<reference::PooledMass>);

  m.impl("select_blocks", ops::SelectBlocksOp<SelectBlocksInto>);
  m.impl("mask_statistics", ops::MaskStatisticsOp<MaskStatisticsOfWords>);
  m.impl("count_kept_blocks", ops::CountKeptBlocksOp<CountKeptBits>);
  m.impl("sample_retained_mass", ops::SampleRetainedMassOp<SampleRetainedMassOfWords>);

  m.impl("block_statistics", ops::BlockStatisticsOp<reference::ComputeBlockStatistics>);
  m.impl("block_logits", ops::BlockLogitsOp<reference::BlockLogits>);

  m.impl("norm_order", ops::NormOrderOp<reference::NormOrder>);
  m.impl("gather_rows", ops::MoveRowsOp<GatherRowsInto>);
  m.impl("scatter_rows", ops::MoveRowsOp<ScatterRowsInto>);

  m.impl("rms_norm", ops::RmsNormOp<reference::RmsNorm>);
  m.impl("rope", ops::RopeOp<RopeInPlace>);
  m.impl("silu_mul", ops::SiluMulOp<reference::SiluMul>);
  m.impl("candidate_statistics", ops::CandidateStatisticsOp<reference::ComputeCandidateStatistics>);
}

}  // namespace sparsed::kernels
