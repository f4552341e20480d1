// SPDX-License-Identifier: Apache-2.0
// What the small kernels share: 16-byte accesses, sums over a block in one fixed order, dtypes.
#pragma once

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

#include "kernels/cuda/element.h"

namespace sparsed::kernels::cuda {

constexpr unsigned kFullWarp = 0xffffffffu;

// Elements of one 16-byte access.
template <class T>
constexpr int kVector = 16 / static_cast<int>(sizeof(T));

template <class T>
struct Type {
  using type = T;
};

// f(Type<T>{}) for the element's type.
template <class F>
void DispatchElement(Element element, F f) {
  if (element == Element::kFloat) {
    f(Type<float>{});
  } else if (element == Element::kBFloat16) {
    f(Type<__nv_bfloat16>{});
  } else {
    f(Type<__half>{});
  }
}

// kVector<T> elements from `source` on. Either way one thread gets the same elements, so that a
// result does not depend on the alignment; where not aligned, those from `valid` on read as `fill`.
template <bool kAligned, class T>
__device__ void LoadVector(const T* source, int64_t valid, float fill,
                           float (&values)[kVector<T>]) {
  if constexpr (kAligned) {
    const uint4 raw = *reinterpret_cast<const uint4*>(source);
    const T* elements = reinterpret_cast<const T*>(&raw);
#pragma unroll
    for (int i = 0; i < kVector<T>; ++i) values[i] = static_cast<float>(elements[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kVector<T>; ++i) {
      values[i] = i < valid ? static_cast<float>(source[i]) : fill;
    }
  }
}

template <bool kAligned, class T>
__device__ void StoreVector(T* target, int64_t valid, const float (&values)[kVector<T>]) {
  if constexpr (kAligned) {
    uint4 raw;
    T* elements = reinterpret_cast<T*>(&raw);
#pragma unroll
    for (int i = 0; i < kVector<T>; ++i) elements[i] = static_cast<T>(values[i]);
    *reinterpret_cast<uint4*>(target) = raw;
  } else {
#pragma unroll
    for (int i = 0; i < kVector<T>; ++i) {
      if (i < valid) target[i] = static_cast<T>(values[i]);
    }
  }
}

// Folds of one value per thread over the block, the result in every thread. The order is fixed: the
// same threads with the same values give the same bits. All threads must call.
// One barrier per fold: results alternate between two places, and nobody can be two folds ahead.
template <class T, int kThreads>
class BlockFold {
 public:
  static constexpr int kWarps = kThreads / 32;
  static_assert(kThreads % 32 == 0 && kWarps <= 32);

  struct Storage {
    T warps[2][kWarps];
  };

  __device__ explicit BlockFold(Storage* storage) : storage_(storage) {}

  template <class Fold>
  __device__ T operator()(T value, Fold fold) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      value = fold(value, __shfl_xor_sync(kFullWarp, value, offset));
    }
    return AcrossWarps(value, fold);
  }

  __device__ T Sum(T value) {
    const auto add = [](T a, T b) { return a + b; };
    if constexpr (std::is_same_v<T, int>) {  // one instruction for the warp
      return AcrossWarps(__reduce_add_sync(kFullWarp, value), add);
    } else {
      return (*this)(value, add);
    }
  }

 private:
  template <class Fold>
  __device__ T AcrossWarps(T value, Fold fold) {
    if constexpr (kWarps > 1) {
      T* warps = storage_->warps[turn_];
      turn_ ^= 1;
      if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
      __syncthreads();
      value = warps[0];
#pragma unroll
      for (int w = 1; w < kWarps; ++w) value = fold(value, warps[w]);
    }
    return value;
  }

  Storage* storage_;
  int turn_ = 0;
};

}  // namespace sparsed::kernels::cuda
