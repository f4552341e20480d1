// SPDX-License-Identifier: Apache-2.0
// Pooled block mass and sampled mass by a second pass over the keys, for whatever attention_portable.h
// serves. Deterministic: a mass cell is summed by one thread block, in one order.
#pragma once

#include <cuda_runtime_api.h>
#include <vector>

#include "kernels/cuda/attention_call.h"
#include "kernels/cuda/portable/attention.h"

namespace sparsed::kernels::cuda {

// Writes call.mass of the rows, all dense and with mass_offset >= 0, given their call.lse over the
// same range. [heads, query_blocks, key_blocks - first_key / block_tokens] each.
cudaError_t LaunchPortableMass(const AttentionCall& call, const std::vector<AttentionRow>& rows,
                               const SoftmaxRange& range, cudaStream_t stream);

// Queries of the one row that the call has, and its mask.
struct SampledQueries {
  const int64_t* positions;  // [count]
  int64_t count;
  int64_t block_tokens;
  double*
      retained;  // [heads, count] written: the query's softmax mass on kept key blocks; NaN where
                 // the position is no token
};

cudaError_t LaunchPortableSample(const AttentionCall& call, const SampledQueries& sample,
                                 cudaStream_t stream);

}  // namespace sparsed::kernels::cuda
