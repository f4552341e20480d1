// SPDX-License-Identifier: Apache-2.0
// Online softmax (Dao et al. 2022) of a warp's 16 queries, base 2: logits come multiplied by
// log2(e), weights are exp2(logit - running maximum). A thread sees two rows (tile_math.cuh), here
// halves 0 and 1. NaN is not seen by the maximum but makes a NaN weight, hence a NaN sum.
#pragma once

#include <cstdint>

#include "kernels/cuda/portable/tile_math.cuh"

namespace sparsed::kernels::cuda {

constexpr float kLog2E = 1.44269504f;
constexpr float kLn2 = 0.693147181f;

// The row of a tile that a half of this thread is.
__device__ inline int HalfRow(int half) { return Warp() * kWarpRows + Lane() / 4 + half * 8; }

__device__ inline float NegativeInfinity() { return __int_as_float(static_cast<int>(0xff800000u)); }

// logits = scores * scale, those of the keys from `count` on -inf whatever they were.
template <int kTile>
__device__ inline void MakeLogits(float scale, int64_t count, float (&scores)[kTile / 8][4]) {
#pragma unroll
  for (int j = 0; j < kTile / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = j * 8 + Lane() % 4 * 2 + i % 2;
      scores[j][i] = column < count ? scores[j][i] * scale : NegativeInfinity();
    }
  }
}

struct OnlineSoftmax {
  float max[2] = {NegativeInfinity(), NegativeInfinity()};
  float sum[2] = {0, 0};  // of this thread's columns; the row's is the sum over the quad

  // Turns a half's logits into weights. What was summed before must be multiplied by the returned
  // factor; `tile_sum` is what the tile adds.
  template <int kTile>
  __device__ float Visit(int half, float (&logits)[kTile / 8][4], float* tile_sum) {
    float tile_max = NegativeInfinity();
#pragma unroll
    for (int j = 0; j < kTile / 8; ++j) {
      tile_max = fmaxf(tile_max, fmaxf(logits[j][half * 2], logits[j][half * 2 + 1]));
    }
    const float new_max = fmaxf(max[half], QuadMax(tile_max));
    // Without any finite logit so far: -inf - -inf would be NaN.
    const float shift = new_max == NegativeInfinity() ? 0.0f : new_max;
    const float factor = exp2f(max[half] - shift);
    max[half] = new_max;
    *tile_sum = 0;
#pragma unroll
    for (int j = 0; j < kTile / 8; ++j) {
#pragma unroll
      for (int i = half * 2; i < half * 2 + 2; ++i) {
        logits[j][i] = exp2f(logits[j][i] - shift);
        *tile_sum += logits[j][i];
      }
    }
    sum[half] = fmaf(sum[half], factor, *tile_sum);
    return factor;
  }

  // Natural log of the row's sum of exponentials, given the quad's sum.
  __device__ float LogSum(int half, float total) const {
    return total == 0.0f ? NegativeInfinity() : (max[half] + log2f(total)) * kLn2;
  }
};

}  // namespace sparsed::kernels::cuda
