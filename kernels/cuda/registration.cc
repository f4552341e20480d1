// SPDX-License-Identifier: Apache-2.0
// Which function serves which operator on CUDA; what is not named here runs the reference.
#include <torch/library.h>

#include "kernels/cuda/cuda.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/fused.h"
#include "kernels/ops/reorder.h"
#include "kernels/ops/score.h"
#include "kernels/ops/select.h"

namespace sparsed::kernels {

TORCH_LIBRARY_IMPL(sparsed, CUDA, m) {
  m.impl("attention", ops::AttentionOp<cuda::Attention>);
  m.impl("attention_with_mass", ops::AttentionWithMassOp<cuda::AttentionWithMass>);
  m.impl("pooled_mass", ops::PooledMassOp<cuda::PooledMass>);

  m.impl("select_blocks", ops::SelectBlocksOp<cuda::SelectBlocks>);
  m.impl("mask_statistics", ops::MaskStatisticsOp<cuda::ComputeMaskStatistics>);
  m.impl("count_kept_blocks", ops::CountKeptBlocksOp<cuda::CountKeptBlocks>);
  m.impl("sample_retained_mass", ops::SampleRetainedMassOp<cuda::SampleRetainedMass>);

  m.impl("block_statistics", ops::BlockStatisticsOp<cuda::ComputeBlockStatistics>);
  m.impl("block_logits", ops::BlockLogitsOp<cuda::BlockLogits>);

  m.impl("norm_order", ops::NormOrderOp<cuda::NormOrder>);
  m.impl("gather_rows", ops::MoveRowsOp<cuda::GatherRows>);
  m.impl("scatter_rows", ops::MoveRowsOp<cuda::ScatterRows>);

  m.impl("rms_norm", ops::RmsNormOp<cuda::RmsNorm>);
  m.impl("rope", ops::RopeOp<cuda::Rope>);
  m.impl("silu_mul", ops::SiluMulOp<cuda::SiluMul>);
  m.impl("candidate_statistics", ops::CandidateStatisticsOp<cuda::ComputeCandidateStatistics>);
}

}  // namespace sparsed::kernels
