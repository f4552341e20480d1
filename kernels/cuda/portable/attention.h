// SPDX-License-Identifier: Apache-2.0
// Attention for any row, head_dim, block size and element, on sm_80 and later: what the faster
// kernels for one architecture do not take. A row's bits do not depend on the other rows.
// Nothing here synchronises; every launch can be captured into a CUDA graph.
#pragma once

#include <cuda_runtime_api.h>
#include <vector>

#include "kernels/cuda/attention_call.h"

namespace sparsed::kernels::cuda {

// Softmax of q k^T * scale over the keys from first_key on, a multiple of the rows' block_tokens
// (0 if they have masks).
struct SoftmaxRange {
  double scale;
  int64_t first_key;
};

// What attention.h defines: scale 1 / sqrt(head_dim), all keys.
SoftmaxRange WholeRange(const AttentionCall& call);

// Writes out and lse of the rows.
cudaError_t LaunchPortableAttention(const AttentionCall& call,
                                    const std::vector<AttentionRow>& rows, cudaStream_t stream);

// Writes lse alone; call.v and call.out are not used.
cudaError_t LaunchPortableLse(const AttentionCall& call, const std::vector<AttentionRow>& rows,
                              const SoftmaxRange& range, cudaStream_t stream);

}  // namespace sparsed::kernels::cuda
