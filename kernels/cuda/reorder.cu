// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/reorder_launch.h"

namespace sparsed::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// A thread block per place; its threads walk the heads' rows, one access each.
template <class Access>
__global__ void __launch_bounds__(kThreads)
    MoveRowsKernel(const __grid_constant__ MoveRowsParams params) {
  const int64_t place = blockIdx.x;
  const auto row_accesses = static_cast<unsigned>(params.row_bytes / sizeof(Access));
  const unsigned accesses = static_cast<unsigned>(params.heads) * row_accesses;
  for (unsigned i = threadIdx.x; i < accesses; i += kThreads) {
    const int64_t head = i / row_accesses;
    const int64_t access = i % row_accesses;
    const int64_t other = params.order[head * params.order_stride + place];
    if (other < 0 || other >= params.tokens) continue;  // no host to tell, and no byte to corrupt
    const int64_t from = params.gather ? other : place;
    const int64_t to = params.gather ? place : other;
    const char* source =
        params.source + from * params.source_token_stride + head * params.source_head_stride;
    char* target =
        params.target + to * params.target_token_stride + head * params.target_head_stride;
    reinterpret_cast<Access*>(target)[access] = reinterpret_cast<const Access*>(source)[access];
  }
}

}  // namespace

void LaunchMoveRows(const MoveRowsParams& params, cudaStream_t stream) {
  const auto grid = static_cast<unsigned>(params.tokens);
  if (params.access_bytes == 16) {
    MoveRowsKernel<uint4><<<grid, kThreads, 0, stream>>>(params);
  } else if (params.access_bytes == 4) {
    MoveRowsKernel<uint32_t><<<grid, kThreads, 0, stream>>>(params);
  } else {
    MoveRowsKernel<uint16_t><<<grid, kThreads, 0, stream>>>(params);
  }
}

}  // namespace sparsed::kernels::cuda
