// SPDX-License-Identifier: Apache-2.0
// The inner loops of the CPU operators, compiled once per instruction set and picked at run time.
// All matrices are fp32, row-major, strides in elements. Each output element is a sum in a fixed
// order, so results do not depend on how many rows share a call.
#pragma once

#include <cstdint>

namespace sparsed::kernels::cpu {

// Keys per packed panel: two 16-float vectors.
inline constexpr int64_t kPanelKeys = 32;
// Rows and columns of packed buffers are padded to whole vectors.
inline constexpr int64_t kVectorFloats = 16;

constexpr int64_t RoundUp(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// State of the online softmax of a tile's queries, in the exp2 domain.
struct SoftmaxState {
  float* max;  // [queries] running maximum of the scaled logits
  float* sum;  // [queries] sum of exp2(logit - max)
};

struct InnerLoops {
  // logits[r, c] = scale * q[r] . key c, for `panels` panels of kPanelKeys keys.
  //   q [rows, >= head_dim], panels [panels][head_dim][kPanelKeys], logits [rows, panels *
  //   kPanelKeys]
  void (*query_key)(const float* q, int64_t q_stride, int64_t rows, int64_t head_dim,
                    const float* packed_keys, int64_t panels, float scale, float* logits,
                    int64_t logits_stride);

  // One online softmax update: logits become weights exp2(logit - new max); columns from `keys` up
  // to a whole panel become 0. rescale[r] = exp2(old max - new max). group_sums [rows, keys /
  // group] are the sums of the weights per group of keys.
  void (*softmax)(float* logits, int64_t logits_stride, int64_t rows, int64_t keys, int64_t group,
                  SoftmaxState state, float* rescale, float* group_sums);

  // out[r] = out[r] * rescale[r] + weights[r] . values.
  //   weights [rows, keys], values [keys, width], out [rows, width]; width a multiple of
  //   kVectorFloats
  void (*weight_value)(const float* weights, int64_t weights_stride, int64_t rows, int64_t keys,
                       const float* values, int64_t width, const float* rescale, float* out);

  // out = x / sqrt(mean(x^2) + eps) * weight.
  void (*rms_norm)(const float* x, const float* weight, int64_t width, float eps, float* out);

  // out = silu(gate) * up.
  void (*silu_mul)(const float* gate, const float* up, int64_t width, float* out);

  // (low, high) = (low * cos - high * sin, high * cos + low * sin).
  void (*rotate)(float* low, float* high, const float* cos, const float* sin, int64_t half);

  // Sum of exp(scale * (x - shift)).
  double (*exp_sum)(const float* x, int64_t n, float shift, float scale);
};

// Of the best instruction set this processor has: AVX-512, AVX2 + FMA, or portable.
const InnerLoops& Loops();

}  // namespace sparsed::kernels::cpu
