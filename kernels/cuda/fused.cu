// SPDX-License-Identifier: Apache-2.0
// Per-token operators: a thread block per token, fp32 inside, rounded once. Which thread has which
// element, and in what order it adds, depends on the width alone; fused multiply-adds are written
// out, so that aligned and unaligned tokens get the same bits.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/fused_launch.h"

namespace sparsed::kernels::cuda {
namespace {

constexpr int kThreads = 256;

template <bool kAligned, class T>
__global__ void __launch_bounds__(kThreads)
    RmsNormKernel(const __grid_constant__ RmsNormParams params) {
  constexpr int kWidth = kVector<T>;
  __shared__ typename BlockFold<float, kThreads>::Storage storage;
  const int64_t width = params.width;
  const T* x = static_cast<const T*>(params.x) + blockIdx.x * params.token_stride;
  const T* weight = static_cast<const T*>(params.weight);
  T* out = static_cast<T*>(params.out) + blockIdx.x * width;
  float sum = 0;
  for (int64_t i = threadIdx.x * kWidth; i < width; i += kThreads * kWidth) {
    float values[kWidth];
    LoadVector<kAligned>(x + i, width - i, 0.0f, values);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) sum = fmaf(values[e], values[e], sum);
  }
  sum = BlockFold<float, kThreads>(&storage).Sum(sum);
  const float mean = __fdiv_rn(sum, static_cast<float>(width));
  const float factor = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, params.eps)));
  for (int64_t i = threadIdx.x * kWidth; i < width; i += kThreads * kWidth) {
    float values[kWidth];
    float gains[kWidth];
    LoadVector<kAligned>(x + i, width - i, 0.0f, values);
    LoadVector<kAligned>(weight + i, width - i, 0.0f, gains);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      values[e] = __fmul_rn(__fmul_rn(values[e], factor), gains[e]);
    }
    StoreVector<kAligned>(out + i, width - i, values);
  }
}

// Row of a token: the last one that starts at or before it.
__device__ int64_t RowStart(const RopeParams& params, int64_t token) {
  int low = 0;
  int high = params.rows;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (params.offsets[middle] <= token) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return params.offsets[low];
}

// count floats, 16 bytes at a time where aligned.
template <bool kAligned, int kCount>
__device__ void LoadFloats(const float* source, int64_t valid, float (&values)[kCount]) {
  static_assert(kCount % kVector<float> == 0);
#pragma unroll
  for (int i = 0; i < kCount; i += kVector<float>) {
    float part[kVector<float>];
    LoadVector<kAligned>(source + i, valid - i, 0.0f, part);
#pragma unroll
    for (int e = 0; e < kVector<float>; ++e) values[i + e] = part[e];
  }
}

template <bool kAligned, class T>
__global__ void __launch_bounds__(kThreads) RopeKernel(const __grid_constant__ RopeParams params) {
  constexpr int kWidth = kVector<T>;
  const int64_t token = params.offsets[0] + blockIdx.x;
  const int64_t half = params.head_dim / 2;
  const int64_t position = token - RowStart(params, token);
  const float* cos = params.cos + position * half;
  const float* sin = params.sin + position * half;
  T* x = static_cast<T*>(params.x) + token * params.token_stride;
  const auto head_vectors = static_cast<unsigned>((half + kWidth - 1) / kWidth);
  const unsigned vectors = head_vectors * static_cast<unsigned>(params.heads);
  for (unsigned v = threadIdx.x; v < vectors; v += kThreads) {
    const int64_t i = int64_t{v % head_vectors} * kWidth;
    const int64_t valid = half - i;
    T* low = x + v / head_vectors * params.head_stride + i;
    float a[kWidth];
    float b[kWidth];
    float c[kWidth];
    float s[kWidth];
    LoadVector<kAligned>(low, valid, 0.0f, a);
    LoadVector<kAligned>(low + half, valid, 0.0f, b);
    LoadFloats<kAligned>(cos + i, valid, c);
    LoadFloats<kAligned>(sin + i, valid, s);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      const float rotated = fmaf(a[e], c[e], -__fmul_rn(b[e], s[e]));
      b[e] = fmaf(b[e], c[e], __fmul_rn(a[e], s[e]));
      a[e] = rotated;
    }
    StoreVector<kAligned>(low, valid, a);
    StoreVector<kAligned>(low + half, valid, b);
  }
}

template <bool kAligned, class T>
__global__ void __launch_bounds__(kThreads)
    SiluMulKernel(const __grid_constant__ SiluMulParams params) {
  constexpr int kWidth = kVector<T>;
  const T* gate = static_cast<const T*>(params.gate_up) + blockIdx.x * params.token_stride;
  const T* up = gate + params.width;
  T* out = static_cast<T*>(params.out) + blockIdx.x * params.width;
  for (int64_t i = threadIdx.x * kWidth; i < params.width; i += kThreads * kWidth) {
    const int64_t valid = params.width - i;
    float g[kWidth];
    float u[kWidth];
    LoadVector<kAligned>(gate + i, valid, 0.0f, g);
    LoadVector<kAligned>(up + i, valid, 0.0f, u);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      // exp overflows to infinity for very negative numbers, and silu becomes the 0 that it is.
      const float silu = __fdiv_rn(g[e], __fadd_rn(1.0f, expf(-g[e])));
      u[e] = __fmul_rn(silu, u[e]);
    }
    StoreVector<kAligned>(out + i, valid, u);
  }
}

}  // namespace

void LaunchRmsNorm(const RmsNormParams& params, cudaStream_t stream) {
  const auto grid = static_cast<unsigned>(params.tokens);
  DispatchElement(params.element, [&](auto type) {
    using T = typename decltype(type)::type;
    if (params.aligned) {
      RmsNormKernel<true, T><<<grid, kThreads, 0, stream>>>(params);
    } else {
      RmsNormKernel<false, T><<<grid, kThreads, 0, stream>>>(params);
    }
  });
}

void LaunchRope(const RopeParams& params, cudaStream_t stream) {
  const auto grid = static_cast<unsigned>(params.offsets[params.rows] - params.offsets[0]);
  DispatchElement(params.element, [&](auto type) {
    using T = typename decltype(type)::type;
    if (params.aligned) {
      RopeKernel<true, T><<<grid, kThreads, 0, stream>>>(params);
    } else {
      RopeKernel<false, T><<<grid, kThreads, 0, stream>>>(params);
    }
  });
}

void LaunchSiluMul(const SiluMulParams& params, cudaStream_t stream) {
  const auto grid = static_cast<unsigned>(params.tokens);
  DispatchElement(params.element, [&](auto type) {
    using T = typename decltype(type)::type;
    if (params.aligned) {
      SiluMulKernel<true, T><<<grid, kThreads, 0, stream>>>(params);
    } else {
      SiluMulKernel<false, T><<<grid, kThreads, 0, stream>>>(params);
    }
  });
}

}  // namespace sparsed::kernels::cuda
