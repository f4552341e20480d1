// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/score.h"

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

void RequireStatistics(const Tensor& x, int64_t blocks, int64_t head_dim,
                       std::string_view argument) {
  RequireFloat(x, 3, argument);
  TORCH_CHECK_VALUE(
      x.is_contiguous() && x.size(0) > 0 && x.size(1) == blocks && x.size(2) == head_dim,
      "sparsed: ", argument, " is ", x.sizes(), ", must be contiguous [heads, ", blocks, ", ",
      head_dim, "]");
}

}  // namespace

void CheckBlockStatistics(const Tensor& x, int64_t block_tokens) {
  RequireActivations(x, 3, "x");
  Require(x.numel() > 0, "x", "must not be empty");
  RequireBlockTokens(block_tokens);
}

void CheckBlockLogits(const BlockStatistics& q, const BlockStatistics& k, int64_t tokens,
                      int64_t block_tokens) {
  RequireBlockTokens(block_tokens);
  RequireRange(tokens, 1, INT64_MAX - block_tokens, "tokens");
  RequireFloat(q.mean, 3, "q_mean");
  const int64_t blocks = BlockCount(tokens, block_tokens);
  const int64_t head_dim = q.mean.size(2);
  Require(head_dim > 0, "q_mean", "must have channels");
  RequireStatistics(q.mean, blocks, head_dim, "q_mean");
  RequireStatistics(q.variance, blocks, head_dim, "q_variance");
  RequireStatistics(k.mean, blocks, head_dim, "k_mean");
  RequireStatistics(k.variance, blocks, head_dim, "k_variance");
  Require(q.variance.size(0) == q.mean.size(0), "q_variance", "must have q_mean's heads");
  Require(k.variance.size(0) == k.mean.size(0), "k_variance", "must have k_mean's heads");
  Require(q.mean.size(0) % k.mean.size(0) == 0, "k_mean",
          "must have a number of heads that divides q_mean's");
  RequireSameDevice(q.mean, q.variance, "q_variance");
  RequireSameDevice(q.mean, k.mean, "k_mean");
  RequireSameDevice(q.mean, k.variance, "k_variance");
}

TORCH_LIBRARY_FRAGMENT(sparsed, m) {
  m.def("block_statistics(Tensor x, int block_tokens) -> (Tensor mean, Tensor variance)");
  m.def(
      "block_logits(Tensor q_mean, Tensor q_variance, Tensor k_mean, Tensor k_variance, "
      "SymInt tokens, int block_tokens, bool covariance) -> Tensor");
}

}  // namespace ops

BlockStatistics ComputeBlockStatistics(const Tensor& x, int64_t block_tokens) {
  static const auto op =
      ops::FindOperator<decltype(ops::BlockStatisticsOp<cpu::ComputeBlockStatistics>)>(
          "sparsed::block_statistics");
  auto [mean, variance] = op.call(x, block_tokens);
  return {mean, variance};
}

Tensor BlockLogits(const BlockStatistics& q, const BlockStatistics& k, int64_t tokens,
                   int64_t block_tokens, bool covariance) {
  static const auto op =
      ops::FindOperator<decltype(ops::BlockLogitsOp<cpu::BlockLogits>)>("sparsed::block_logits");
  return op.call(q.mean, q.variance, k.mean, k.variance, tokens, block_tokens, covariance);
}

}  // namespace sparsed::kernels
