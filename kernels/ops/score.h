// SPDX-License-Identifier: Apache-2.0
// Adaptors of the operators of kernels/score.h; see operator.h.
#pragma once

#include <tuple>

#include <ATen/core/Tensor.h>

#include "kernels/score.h"

namespace sparsed::kernels::ops {

void CheckBlockStatistics(const at::Tensor& x, int64_t block_tokens);
void CheckBlockLogits(const BlockStatistics& q, const BlockStatistics& k, int64_t tokens,
                      int64_t block_tokens);

template <auto kImplementation>
std::tuple<at::Tensor, at::Tensor> BlockStatisticsOp(const at::Tensor& x, int64_t block_tokens) {
  CheckBlockStatistics(x, block_tokens);
  BlockStatistics result = kImplementation(x, block_tokens);
  return {result.mean, result.variance};
}

template <auto kImplementation>
// NOLINTNEXTLINE(readability-function-size): one parameter per argument of the operator's schema
at::Tensor BlockLogitsOp(const at::Tensor& q_mean, const at::Tensor& q_variance,
                         const at::Tensor& k_mean, const at::Tensor& k_variance, int64_t tokens,
                         int64_t block_tokens, bool covariance) {
  const BlockStatistics q{q_mean, q_variance};
  const BlockStatistics k{k_mean, k_variance};
  CheckBlockLogits(q, k, tokens, block_tokens);
  return kImplementation(q, k, tokens, block_tokens, covariance);
}

}  // namespace sparsed::kernels::ops
