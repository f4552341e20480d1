// SPDX-License-Identifier: Apache-2.0
// Adaptors of the operators of kernels/fused.h; see operator.h.
#pragma once

#include <tuple>

#include <ATen/core/Tensor.h>

#include "kernels/fused.h"
#include "kernels/ops/lists.h"

namespace sparsed::kernels::ops {

void CheckRmsNorm(const at::Tensor& x, const at::Tensor& weight);
void CheckRope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
               const at::Tensor& row_offsets);
void CheckSiluMul(const at::Tensor& gate_up);
void CheckCandidateStatistics(const at::Tensor& logits, const at::Tensor& uniforms,
                              double temperature);

template <auto kImplementation>
at::Tensor RmsNormOp(const at::Tensor& x, const at::Tensor& weight, double eps) {
  CheckRmsNorm(x, weight);
  return kImplementation(x, weight, eps);
}

template <auto kImplementation>
void RopeOp(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
            at::IntArrayRef row_offsets) {
  const at::Tensor offsets = ListAsTensor(row_offsets);
  CheckRope(x, cos, sin, offsets);
  kImplementation(x, cos, sin, offsets);
}

template <auto kImplementation>
at::Tensor SiluMulOp(const at::Tensor& gate_up) {
  CheckSiluMul(gate_up);
  return kImplementation(gate_up);
}

template <auto kImplementation>
std::tuple<at::Tensor, at::Tensor, at::Tensor> CandidateStatisticsOp(const at::Tensor& logits,
                                                                     const at::Tensor& uniforms,
                                                                     double temperature) {
  CheckCandidateStatistics(logits, uniforms, temperature);
  CandidateStatistics result = kImplementation(logits, uniforms, temperature);
  return {result.token, result.probability, result.finite};
}

}  // namespace sparsed::kernels::ops
