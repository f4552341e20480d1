// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/hopper/instances.cuh"

namespace sparsed::kernels::cuda::hopper {

LaunchFunction Fp16HeadDim64(RowClass row_class) { return InstanceFor<__half, 64>(row_class); }

}  // namespace sparsed::kernels::cuda::hopper
