// SPDX-License-Identifier: Apache-2.0
// Block scores from block statistics: cheap, because no token meets another token.
// Throws c10::ValueError naming the argument.
#pragma once

#include <ATen/core/Tensor.h>

namespace sparsed::kernels {

// Per head, block and channel over the block's real tokens; population variance.
struct BlockStatistics {
  at::Tensor mean;      // [heads, blocks, head_dim] fp32
  at::Tensor variance;  // [heads, blocks, head_dim] fp32
};

// x [tokens, heads, head_dim], last stride 1.
BlockStatistics ComputeBlockStatistics(const at::Tensor& x, int64_t block_tokens);

// What a block pair's logits are on average, plus log(real tokens / block_tokens) for a short last
// key block, so that softmax over key blocks estimates pooled attention mass:
//   mean query . mean key / sqrt(head_dim)                                  (NABLA)
//   with covariance, + (1/head_dim) [qv . (km^2 + kv) + qm^2 . kv]          (BA-Att, Eq. 14, beta
//   1)
// k may have fewer heads than q (grouped queries). -> [heads, query_blocks, key_blocks] fp32
at::Tensor BlockLogits(const BlockStatistics& q, const BlockStatistics& k, int64_t tokens,
                       int64_t block_tokens, bool covariance);

}  // namespace sparsed::kernels
