// SPDX-License-Identifier: Apache-2.0
// Which function serves which operator on the CPU.
#include <string>

#include <torch/library.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/fused.h"
#include "kernels/ops/reorder.h"
#include "kernels/ops/score.h"
#include "kernels/ops/select.h"

namespace sparsed::kernels {

// The instruction set that the CPU operators use (isa.h).
TORCH_LIBRARY_FRAGMENT(sparsed, m) {
  m.def("cpu_isa() -> str", [] { return std::string(cpu::Loops().name); });
}

TORCH_LIBRARY_IMPL(sparsed, CPU, m) {
  m.impl("attention", ops::AttentionOp<cpu::Attention>);
  m.impl("attention_with_mass", ops::AttentionWithMassOp<cpu::AttentionWithMass>);
  m.impl("pooled_mass", ops::PooledMassOp<cpu::PooledMass>);

  m.impl("select_blocks", ops::SelectBlocksOp<cpu::SelectBlocks>);
  m.impl("mask_statistics", ops::MaskStatisticsOp<cpu::ComputeMaskStatistics>);
  m.impl("count_kept_blocks", ops::CountKeptBlocksOp<cpu::CountKeptBlocks>);
  m.impl("sample_retained_mass", ops::SampleRetainedMassOp<cpu::SampleRetainedMass>);

  m.impl("block_statistics", ops::BlockStatisticsOp<cpu::ComputeBlockStatistics>);
  m.impl("block_logits", ops::BlockLogitsOp<cpu::BlockLogits>);

  m.impl("norm_order", ops::NormOrderOp<cpu::NormOrder>);
  m.impl("gather_rows", ops::MoveRowsOp<cpu::GatherRows>);
  m.impl("scatter_rows", ops::MoveRowsOp<cpu::ScatterRows>);

  m.impl("rms_norm", ops::RmsNormOp<cpu::RmsNorm>);
  m.impl("rope", ops::RopeOp<cpu::Rope>);
  m.impl("silu_mul", ops::SiluMulOp<cpu::SiluMul>);
  m.impl("candidate_statistics", ops::CandidateStatisticsOp<cpu::ComputeCandidateStatistics>);
}

}  // namespace sparsed::kernels
