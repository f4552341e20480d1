// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/fused.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "kernels/cpu/cpu.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/operator.h"

namespace sparsed::kernels {

using at::Tensor;

namespace ops {

void CheckRmsNorm(const Tensor& x, const Tensor& weight) {
  RequireFusedInput(x, 2, "x");
  RequireFusedInput(weight, 1, "weight");
  Require(weight.scalar_type() == x.scalar_type(), "weight", "must have x's dtype");
  Require(weight.size(0) == x.size(1), "weight", "must have x's width");
  RequireSameDevice(x, weight, "weight");
}

void CheckRope(const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& row_offsets) {
  RequireFusedInput(x, 3, "x");
  RequireFloat(cos, 2, "cos");
  RequireFloat(sin, 2, "sin");
  Require(x.size(2) % 2 == 0, "x", "must have an even head_dim");
  Require(cos.is_contiguous() && sin.is_contiguous() && cos.sizes() == sin.sizes() &&
              cos.size(1) == x.size(2) / 2,
          "cos", "and sin must be contiguous [positions, head_dim / 2]");
  RequireSameDevice(x, cos, "cos");
  RequireSameDevice(x, sin, "sin");
  RequireRowOffsets(row_offsets, x.size(0));
  const auto offsets = row_offsets.accessor<int64_t, 1>();
  for (int64_t r = 0; r + 1 < offsets.size(0); ++r) {
    Require(offsets[r + 1] - offsets[r] <= cos.size(0), "cos", "must cover the longest row");
  }
}

void CheckSiluMul(const Tensor& gate_up) {
  RequireFusedInput(gate_up, 2, "gate_up");
  Require(gate_up.size(1) % 2 == 0, "gate_up", "must have an even width");
}

void CheckCandidateStatistics(const Tensor& logits, const Tensor& uniforms, double temperature) {
  RequireFusedInput(logits, 2, "logits");
  Require(logits.size(1) > 0 && logits.is_contiguous(), "logits",
          "must be contiguous and not empty");
  Require(uniforms.dim() == 1 && uniforms.size(0) == logits.size(0) &&
              uniforms.scalar_type() == at::kDouble && uniforms.is_contiguous(),
          "uniforms", "must be contiguous float64, one per position");
  RequireSameDevice(logits, uniforms, "uniforms");
  Require(temperature >= 0, "temperature", "must not be negative");
}

TORCH_LIBRARY_FRAGMENT(sparsed, m) {
  m.def("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor");
  m.def("rope(Tensor(a!) x, Tensor cos, Tensor sin, SymInt[] row_offsets) -> ()");
  m.def("silu_mul(Tensor gate_up) -> Tensor");
  m.def(
      "candidate_statistics(Tensor logits, Tensor uniforms, float temperature) "
      "-> (Tensor token, Tensor probability, Tensor finite)");
}

}  // namespace ops

Tensor RmsNorm(const Tensor& x, const Tensor& weight, double eps) {
  static const auto op =
      ops::FindOperator<decltype(ops::RmsNormOp<cpu::RmsNorm>)>("sparsed::rms_norm");
  return op.call(x, weight, eps);
}

void Rope(const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& row_offsets) {
  static const auto op = ops::FindOperator<decltype(ops::RopeOp<cpu::Rope>)>("sparsed::rope");
  op.call(x, cos, sin, ops::TensorAsList(row_offsets, "row_offsets"));
}

Tensor SiluMul(const Tensor& gate_up) {
  static const auto op =
      ops::FindOperator<decltype(ops::SiluMulOp<cpu::SiluMul>)>("sparsed::silu_mul");
  return op.call(gate_up);
}

CandidateStatistics ComputeCandidateStatistics(const Tensor& logits, const Tensor& uniforms,
                                               double temperature) {
  static const auto op =
      ops::FindOperator<decltype(ops::CandidateStatisticsOp<cpu::ComputeCandidateStatistics>)>(
          "sparsed::candidate_statistics");
  auto [token, probability, finite] = op.call(logits, uniforms, temperature);
  return {token, probability, finite};
}

}  // namespace sparsed::kernels
