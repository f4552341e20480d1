// SPDX-License-Identifier: Apache-2.0
// Online softmax over key tiles (Milakov and Gimelshein 2018, as in FlashAttention), base 2.
// A thread has two rows (r = 0, 1) of the tile, a quad of lanes shares them.
#pragma once

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/hopper/key_list.cuh"
#include "kernels/cuda/hopper/traits.cuh"

namespace sparsed::kernels::cuda::hopper {

// Weights are relative to a reference that follows the row's maximum only when it has grown by more
// than 2^8: then everything summed so far is rescaled. Weights stay below 2^8, exact in fp32 sums
// and far from the limits of fp16; rescaling becomes rare instead of happening every tile.
inline constexpr float kSlackLog2 = 8;

__device__ inline float QuadMax(float x) {
  x = fmaxf(x, __shfl_xor_sync(kWholeWarp, x, 1));
  return fmaxf(x, __shfl_xor_sync(kWholeWarp, x, 2));
}

__device__ inline float QuadSum(float x) {
  x += __shfl_xor_sync(kWholeWarp, x, 1);
  return x + __shfl_xor_sync(kWholeWarp, x, 2);
}

__device__ inline uint32_t Pack(float low, float high, __nv_bfloat16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}

__device__ inline uint32_t Pack(float low, float high, __half) {
  const __half2 pair = __floats2half2_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}

template <class T>
class Softmax {
 public:
  static constexpr int kScores = T::kKeyTile / 2;
  static constexpr int kParts = T::kMassBlocksPerTile;

  __device__ explicit Softmax(float scale_log2) : scale_log2_(scale_log2) {}

  // Scores -> weights in place. Returns whether `rescale` has a factor other than 1 in this warp.
  __device__ bool Update(float (&s)[kScores]) {
    bool grown = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float max = s[2 * r];
#pragma unroll
      for (int i = 0; i < kScores; i += 4) max = fmaxf(max, fmaxf(s[i + 2 * r], s[i + 2 * r + 1]));
      max = QuadMax(max) * scale_log2_;
      rescale[r] = 1;
      if (max > reference_[r] + kSlackLog2 || reference_[r] == -INFINITY) {
        // From -inf the factor is 0, also where the new reference is -inf as well.
        rescale[r] = reference_[r] == -INFINITY ? 0 : exp2f(reference_[r] - max);
        reference_[r] = max;
        sum_[r] *= rescale[r];
        grown = true;
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float base = reference_[r] == -INFINITY ? 0 : -reference_[r];
#pragma unroll
      for (float& sum : part_sum[r]) sum = 0;
#pragma unroll
      for (int i = 0; i < kScores; i += 4) {
        float& a = s[i + 2 * r];
        float& b = s[i + 2 * r + 1];
        a = Exp2(fmaf(a, scale_log2_, base));
        b = Exp2(fmaf(b, scale_log2_, base));
        part_sum[r][i * kParts / kScores] += a + b;
      }
#pragma unroll
      for (const float sum : part_sum[r]) sum_[r] += sum;
    }
    return __any_sync(kWholeWarp, grown);
  }

  // Sum of a row's weights over all tiles; in every lane of the quad.
  __device__ float Sum(int r) const { return QuadSum(sum_[r]); }
  __device__ float reference(int r) const { return reference_[r]; }

  float rescale[2];           // for the output summed so far, from the last Update
  float part_sum[2][kParts];  // this thread's share of the last tile's weights, per mass block

 private:
  __device__ static float Exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }

  float scale_log2_;
  float reference_[2] = {-INFINITY, -INFINITY};  // in base-2 units
  float sum_[2] = {0, 0};                        // this thread's share
};

// Scores of keys that do not exist are -inf.
template <class T>
__device__ void MaskTail(float (&s)[T::kKeyTile / 2], const KeyTile& tile) {
  const int column = static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll
  for (int i = 0; i < T::kKeyTile / 2; ++i) {
    const int key = i / 4 * 8 + column + i % 2;
    if (key % 64 >= tile.valid[key / 64]) s[i] = -INFINITY;
  }
}

template <class T>
__device__ void PackWeights(const float (&s)[T::kKeyTile / 2], uint32_t (&p)[T::kKeyTile / 4]) {
#pragma unroll
  for (int i = 0; i < T::kKeyTile / 4; ++i) {
    p[i] = Pack(s[2 * i], s[2 * i + 1], typename T::Element());
  }
}

}  // namespace sparsed::kernels::cuda::hopper
