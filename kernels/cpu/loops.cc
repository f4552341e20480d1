// SPDX-License-Identifier: Apache-2.0
// Compiled once per instruction set, with SPARSED_ISA naming the namespace. Includes nothing that
// defines an inline function outside an anonymous namespace (see vector.h).
#include "kernels/cpu/isa.h"
#include "kernels/cpu/vector.h"

namespace sparsed::kernels::cpu::SPARSED_ISA {
namespace {

// kRows queries against one panel: 2 * kRows accumulators stay in registers.
template <int kRows>
SPARSED_INLINE void QueryKeyRows(const float* q, int64_t q_stride, int64_t head_dim,
                                 const float* panel, float scale, float* logits,
                                 int64_t logits_stride) {
  Vec low[kRows] = {};
  Vec high[kRows] = {};
  for (int64_t d = 0; d < head_dim; ++d) {
    const Vec keys_low = Load(panel + d * kPanelKeys);
    const Vec keys_high = Load(panel + d * kPanelKeys + kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vec x = Splat(q[r * q_stride + d]);
      low[r] += x * keys_low;
      high[r] += x * keys_high;
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    Store(logits + r * logits_stride, low[r] * scale);
    Store(logits + r * logits_stride + kLanes, high[r] * scale);
  }
}

void QueryKey(const float* q, int64_t q_stride, int64_t rows, int64_t head_dim,
              const float* packed_keys, int64_t panels, float scale, float* logits,
              int64_t logits_stride) {
  constexpr int kRows = 8;
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) {
    for (int64_t p = 0; p < panels; ++p) {
      QueryKeyRows<kRows>(q + r * q_stride, q_stride, head_dim,
                          packed_keys + p * head_dim * kPanelKeys, scale,
                          logits + r * logits_stride + p * kPanelKeys, logits_stride);
    }
  }
  for (; r < rows; ++r) {
    for (int64_t p = 0; p < panels; ++p) {
      QueryKeyRows<1>(q + r * q_stride, q_stride, head_dim, packed_keys + p * head_dim * kPanelKeys,
                      scale, logits + r * logits_stride + p * kPanelKeys, logits_stride);
    }
  }
}

float RowMax(const float* x, int64_t n, float start) {
  Vec best = Splat(start);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) best = Max(best, Load(x + i));
  if (i < n) best = Max(best, LoadPart(x + i, n - i, start));
  return MaxLane(best);
}

// x[i] = exp2(x[i] - max); returns the sum.
float ExponentiateGroup(float* x, int64_t n, float max) {
  Vec sum = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec weight = Exp2(Load(x + i) - max);
    Store(x + i, weight);
    sum += weight;
  }
  if (i < n) {
    const Vec weight = Exp2(LoadPart(x + i, n - i, max) - max);
    const Vec kept = LoadPart(reinterpret_cast<const float*>(&weight), n - i, 0.0f);
    StorePart(x + i, n - i, kept);
    sum += kept;
  }
  return SumLanes(sum);
}

void Softmax(float* logits, int64_t logits_stride, int64_t rows, int64_t keys, int64_t group,
             SoftmaxState state, float* rescale, float* group_sums) {
  const int64_t groups = (keys + group - 1) / group;
  const int64_t padded = RoundUp(keys, kPanelKeys);
  for (int64_t r = 0; r < rows; ++r) {
    float* row = logits + r * logits_stride;
    const float max = RowMax(row, keys, state.max[r]);
    // exp2(-inf - max) would be clamped to 2^-126; the first tile's old sum is 0, so 0 is exact.
    const Vec factor = Exp2(Splat(state.max[r] - max));
    rescale[r] = state.sum[r] == 0.0f ? 0.0f : factor[0];
    float sum = 0;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t begin = g * group;
      const int64_t n = begin + group <= keys ? group : keys - begin;
      group_sums[r * groups + g] = ExponentiateGroup(row + begin, n, max);
      sum += group_sums[r * groups + g];
    }
    for (int64_t c = keys; c < padded; ++c) row[c] = 0;
    state.sum[r] = state.sum[r] * rescale[r] + sum;
    state.max[r] = max;
  }
}

template <int kRows, int kVecs>
SPARSED_INLINE void WeightValueRows(const float* weights, int64_t weights_stride, int64_t keys,
                                    const float* values, int64_t width, const float* rescale,
                                    float* out) {
  Vec sums[kRows][kVecs];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      sums[r][v] = Load(out + r * width + v * kLanes) * rescale[r];
    }
  }
  for (int64_t k = 0; k < keys; ++k) {
    Vec value[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) value[v] = Load(values + k * width + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vec weight = Splat(weights[r * weights_stride + k]);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) sums[r][v] += weight * value[v];
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) Store(out + r * width + v * kLanes, sums[r][v]);
  }
}

// All columns of kRows output rows, four vectors at a time.
template <int kRows>
SPARSED_INLINE void WeightValueColumns(const float* weights, int64_t weights_stride, int64_t keys,
                                       const float* values, int64_t width, const float* rescale,
                                       float* out) {
  int64_t column = 0;
  for (; column + 4 * kLanes <= width; column += 4 * kLanes) {
    WeightValueRows<kRows, 4>(weights, weights_stride, keys, values + column, width, rescale,
                              out + column);
  }
  for (; column < width; column += kLanes) {
    WeightValueRows<kRows, 1>(weights, weights_stride, keys, values + column, width, rescale,
                              out + column);
  }
}

void WeightValue(const float* weights, int64_t weights_stride, int64_t rows, int64_t keys,
                 const float* values, int64_t width, const float* rescale, float* out) {
  constexpr int kRows = 6;
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) {
    WeightValueColumns<kRows>(weights + r * weights_stride, weights_stride, keys, values, width,
                              rescale + r, out + r * width);
  }
  for (; r < rows; ++r) {
    WeightValueColumns<1>(weights + r * weights_stride, weights_stride, keys, values, width,
                          rescale + r, out + r * width);
  }
}

void RmsNorm(const float* x, const float* weight, int64_t width, float eps, float* out) {
  Vec sum = {};
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    const Vec v = Load(x + i);
    sum += v * v;
  }
  float total = SumLanes(sum);
  for (int64_t j = i; j < width; ++j) total += x[j] * x[j];
  const float factor = 1.0f / __builtin_sqrtf(total / static_cast<float>(width) + eps);
  for (i = 0; i + kLanes <= width; i += kLanes) {
    Store(out + i, Load(x + i) * factor * Load(weight + i));
  }
  for (; i < width; ++i) out[i] = x[i] * factor * weight[i];
}

// silu(g) * u. exp(-g) overflows for very negative g; there silu is 0 to fp32 precision, and Exp2's
// domain ends.
SPARSED_INLINE Vec SiluTimes(Vec g, Vec u) {
  const Vec exponent = g * -kLog2E;
  const Vec bounded = exponent > 126.0f ? Splat(126.0f) : exponent;
  return g / (1.0f + Exp2(bounded)) * u;
}

void SiluMul(const float* gate, const float* up, int64_t width, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) Store(out + i, SiluTimes(Load(gate + i), Load(up + i)));
  if (i < width) {
    const int64_t n = width - i;
    StorePart(out + i, n, SiluTimes(LoadPart(gate + i, n, 0.0f), LoadPart(up + i, n, 0.0f)));
  }
}

void Rotate(float* low, float* high, const float* cos, const float* sin, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = low[i];
    const float b = high[i];
    low[i] = a * cos[i] - b * sin[i];
    high[i] = b * cos[i] + a * sin[i];
  }
}

double ExpSum(const float* x, int64_t n, float shift, float scale) {
  Vec sum = {};
  int64_t i = 0;
  const float factor = scale * kLog2E;
  for (; i + kLanes <= n; i += kLanes) sum += Exp2((Load(x + i) - shift) * factor);
  if (i < n) {
    const Vec part = Exp2((LoadPart(x + i, n - i, shift) - shift) * factor);
    sum += LoadPart(reinterpret_cast<const float*>(&part), n - i, 0.0f);
  }
  return static_cast<double>(SumLanes(sum));
}

}  // namespace

extern const InnerLoops kLoops;
const InnerLoops kLoops = {QueryKey, Softmax, WeightValue, RmsNorm, SiluMul, Rotate, ExpSum};

}  // namespace sparsed::kernels::cpu::SPARSED_ISA
