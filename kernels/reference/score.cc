// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <ATen/ATen.h>

#include "kernels/block_mask.h"
#include "kernels/reference/reference.h"

namespace sparsed::kernels::reference {

BlockStatistics ComputeBlockStatistics(const at::Tensor& x, int64_t block_tokens) {
  const at::Tensor tokens = Wide(x).transpose(0, 1);  // [heads, tokens, head_dim]
  const at::Tensor counts = TokensPerBlock(tokens, x.size(0), block_tokens).unsqueeze(1);
  const at::Tensor mean = SumBlocks(tokens, block_tokens, 1) / counts;
  const at::Tensor deviations =
      tokens - mean.repeat_interleave(block_tokens, 1).narrow(1, 0, x.size(0));
  return {mean.contiguous(),
          (SumBlocks(deviations.square(), block_tokens, 1) / counts).contiguous()};
}

at::Tensor BlockLogits(const BlockStatistics& q, const BlockStatistics& k, int64_t tokens,
                       int64_t block_tokens, bool covariance) {
  const auto head_dim = double(q.mean.size(2));
  const auto keys = [&](const at::Tensor& x) {
    return RepeatKvHeads(x, q.mean.size(0), 0).transpose(1, 2);
  };
  at::Tensor logits = at::matmul(q.mean, keys(k.mean)) / std::sqrt(head_dim);
  if (covariance) {
    logits = logits + (at::matmul(q.variance, keys(k.mean.square() + k.variance)) +
                       at::matmul(q.mean.square(), keys(k.variance))) /
                          head_dim;
  }
  return logits + (TokensPerBlock(logits, tokens, block_tokens) / double(block_tokens)).log();
}

}  // namespace sparsed::kernels::reference
