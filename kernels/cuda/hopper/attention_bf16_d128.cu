// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/hopper/instances.cuh"

namespace sparsed::kernels::cuda::hopper {

LaunchFunction Bf16HeadDim128(RowClass row_class) {
  return InstanceFor<__nv_bfloat16, 128>(row_class);
}

}  // namespace sparsed::kernels::cuda::hopper
