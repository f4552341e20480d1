// SPDX-License-Identifier: Apache-2.0
// Launches of score.cu. Pointers are device pointers, strides count elements.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>

#include "kernels/cuda/element.h"

namespace sparsed::kernels::cuda {

struct BlockStatisticsParams {
  const void* x;  // [tokens, heads, head_dim], last stride 1
  Element element;
  bool aligned;  // every row of x is a whole number of 16-byte accesses
  int64_t token_stride;
  int64_t head_stride;
  int64_t tokens;
  int64_t heads;
  int64_t head_dim;
  int64_t block_tokens;
  float* mean;      // [heads, blocks, head_dim]
  float* variance;  // as mean
};
void LaunchBlockStatistics(const BlockStatisticsParams& params, cudaStream_t stream);

struct BlockLogitsParams {
  const float* q_mean;      // [heads, blocks, head_dim]
  const float* q_variance;  // as q_mean
  const float* k_mean;      // [kv_heads, blocks, head_dim]
  const float* k_variance;  // as k_mean
  int64_t heads;
  int64_t kv_heads;
  int64_t blocks;
  int64_t head_dim;
  bool covariance;
  float last_block_term;  // added to the logits of the last key block
  float* logits;          // [heads, blocks, blocks]
};
void LaunchBlockLogits(const BlockLogitsParams& params, cudaStream_t stream);

}  // namespace sparsed::kernels::cuda
