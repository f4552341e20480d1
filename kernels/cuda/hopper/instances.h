// SPDX-License-Identifier: Apache-2.0
// The compiled instances of the kernel, by what a launch needs.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/attention_call.h"

namespace sparsed::kernels::cuda::hopper {

struct Params;

// What all rows of a launch have in common.
enum class RowClass {
  kShared,   // dense rows and block masks of 128
  kOwn,      // block masks of 64
  kMass128,  // dense rows with mass of blocks of 128
  kMass64,   // or 64
};

using LaunchFunction = cudaError_t (*)(const Params& params, int ctas, cudaStream_t stream);

LaunchFunction FindInstance(Element element, int64_t head_dim, RowClass row_class);

}  // namespace sparsed::kernels::cuda::hopper
