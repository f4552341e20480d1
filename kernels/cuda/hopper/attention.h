// SPDX-License-Identifier: Apache-2.0
// Attention on compute capability 9.0: TMA loads, wgmma, warp specialisation. Takes bf16 and fp16 at
// head_dim 64 and 128 with block masks of 64 or 128 tokens; other rows are the portable kernel's.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>
#include <vector>

#include "kernels/cuda/attention_call.h"

namespace sparsed::kernels::cuda::hopper {

// Whether the current device and the call (dtype, head_dim, alignment) suit these kernels at all.
bool TakesCall(const AttentionCall& call);

// Whether they take this row of such a call.
bool TakesRow(const AttentionRow& row);

// Bytes of device memory that Launch needs for these rows, 256-byte aligned.
int64_t WorkspaceBytes(const std::vector<AttentionRow>& rows);

// Computes out, lse and mass of `rows`, each of which TakesRow. Asynchronous on `stream`.
cudaError_t Launch(const AttentionCall& call, const std::vector<AttentionRow>& rows,
                   void* workspace, cudaStream_t stream);

}  // namespace sparsed::kernels::cuda::hopper
