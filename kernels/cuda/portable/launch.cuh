// SPDX-License-Identifier: Apache-2.0
// From a call's run-time facts to a kernel's types, and its launch.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_call.h"
#include "kernels/cuda/portable/tile_load.cuh"

namespace sparsed::kernels::cuda {

// Two threads per query: a warp has 16 of them.
constexpr int TileThreads(int tile) { return tile / kWarpRows * 32; }

// f(T{}) with the element's type.
template <class F>
cudaError_t ForElement(Element element, F f) {
  switch (element) {
    case Element::kFloat:
      return f(float{});
    case Element::kBFloat16:
      return f(__nv_bfloat16{});
    case Element::kHalf:
      return f(__half{});
  }
  return cudaErrorInvalidValue;
}

template <int kValue>
struct Constant {
  static constexpr int value = kValue;
};

// f(Constant<tile>{}): queries and keys of a tile. fp32 tiles are small because its tokens are large.
template <class T, class F>
cudaError_t ForTile(bool small, F f) {
  if constexpr (!kTensorCores<T>) {
    return f(Constant<32>{});
  } else {
    return small ? f(Constant<32>{}) : f(Constant<64>{});
  }
}

// A tile may not be larger than a block.
inline bool NeedsSmallTile(int64_t block_tokens) { return block_tokens < 64; }

template <class... Parameters, class... Arguments>
cudaError_t Launch(void (*kernel)(Parameters...), int64_t blocks, int threads, size_t shared_bytes,
                   cudaStream_t stream, const Arguments&... arguments) {
  // A grid has 2^31 - 1 blocks at most. Tensors with more tiles than that fit no device.
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  if (shared_bytes > 48 << 10) {  // more than that must be asked for
    const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return error;
  }
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), shared_bytes, stream>>>(
      arguments...);
  return cudaGetLastError();
}

}  // namespace sparsed::kernels::cuda
