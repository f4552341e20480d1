// SPDX-License-Identifier: Apache-2.0
// Norms and their sort. One radix sort serves all heads and windows: the window stands above the
// norm in the key, and radix sort is stable, so equal norms keep their order.
#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/reorder_launch.h"

namespace sparsed::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// Norms are not negative, so their bits compare as they do; every NaN comes after everything else.
__device__ uint32_t BitsOfNorm(float norm) {
  return isnan(norm) ? 0x7fffffffu : __float_as_uint(norm);
}

// A warp per token and head; squares of all dtypes are exact in fp64.
template <bool kAligned, class T>
__global__ void __launch_bounds__(kThreads)
    NormKeysKernel(const __grid_constant__ NormKeysParams params) {
  constexpr int kWidth = kVector<T>;
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;  // token * heads + head
  if (row >= params.tokens * params.heads) return;
  const int64_t token = row / params.heads;
  const int64_t head = row % params.heads;
  const T* x =
      static_cast<const T*>(params.x) + token * params.token_stride + head * params.head_stride;
  double sum = 0;
  for (int64_t d = threadIdx.x % 32 * kWidth; d < params.head_dim; d += 32 * kWidth) {
    float values[kWidth];
    LoadVector<kAligned>(x + d, params.head_dim - d, 0.0f, values);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const auto value = static_cast<double>(values[i]);
      sum = fma(value, value, sum);
    }
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(kFullWarp, sum, offset);
  if (threadIdx.x % 32 != 0) return;
  const int64_t windows = (params.tokens + params.window - 1) / params.window;
  const auto window = static_cast<uint64_t>(head * windows + token / params.window);
  const int64_t place = head * params.tokens + token;
  params.keys[place] = window << 32 | BitsOfNorm(static_cast<float>(sqrt(sum)));
  params.places[place] = static_cast<int32_t>(token);
}

cudaError_t Sort(const SortParams& params, void* workspace, size_t* workspace_bytes,
                 cudaStream_t stream) {
  return cub::DeviceRadixSort::SortPairs(workspace, *workspace_bytes, params.keys,
                                         params.sorted_keys, params.places, params.sorted_places,
                                         params.count, 0, params.key_bits, stream);
}

}  // namespace

void LaunchNormKeys(const NormKeysParams& params, cudaStream_t stream) {
  const auto grid = static_cast<unsigned>((params.tokens * params.heads + kWarps - 1) / kWarps);
  DispatchElement(params.element, [&](auto type) {
    using T = typename decltype(type)::type;
    if (params.aligned) {
      NormKeysKernel<true, T><<<grid, kThreads, 0, stream>>>(params);
    } else {
      NormKeysKernel<false, T><<<grid, kThreads, 0, stream>>>(params);
    }
  });
}

size_t SortWorkspaceBytes(const SortParams& params) {
  size_t bytes = 0;
  Sort(params, nullptr, &bytes, nullptr);
  return bytes;
}

cudaError_t LaunchSort(const SortParams& params, void* workspace, size_t workspace_bytes,
                       cudaStream_t stream) {
  return Sort(params, workspace, &workspace_bytes, stream);
}

}  // namespace sparsed::kernels::cuda
