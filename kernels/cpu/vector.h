// SPDX-License-Identifier: Apache-2.0
// A vector of floats and the few functions on it, in the compiler's vector extension. It is exactly
// one register: wider ones are kept in memory by GCC 12, at a tenth of the speed. Everything is forced inline, so nothing of one instruction
// set can be picked by the linker for another. Included by loops.cc only.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
#include <immintrin.h>  // forces its functions inline as well
#endif

#define SPARSED_INLINE inline __attribute__((always_inline))

namespace sparsed::kernels::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int64_t kLanes = 16;
#elif defined(__AVX2__)
constexpr int64_t kLanes = 8;
#else
constexpr int64_t kLanes = 4;
#endif
using Vec = float __attribute__((vector_size(kLanes * sizeof(float))));
using VecInt = int32_t __attribute__((vector_size(kLanes * sizeof(float))));
#if defined(__AVX512F__)
// The forms with a mask: GCC 12 warns of its own uninitialised operands in the others.
constexpr __mmask16 kAllLanes = 0xffff;
#endif

SPARSED_INLINE Vec Load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
SPARSED_INLINE void Store(float* p, Vec v) { std::memcpy(p, &v, sizeof(v)); }
SPARSED_INLINE Vec Splat(float x) { return x - Vec{}; }

// First n lanes from p, the others `fill`.
SPARSED_INLINE Vec LoadPart(const float* p, int64_t n, float fill) {
  float lanes[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) lanes[i] = i < n ? p[i] : fill;
  return Load(lanes);
}
SPARSED_INLINE void StorePart(float* p, int64_t n, Vec v) {
  for (int64_t i = 0; i < n; ++i) p[i] = v[i];
}

// NaN in b is kept out, NaN in a stays: callers find NaN through the sums, not through the maximum.
#if defined(__AVX512F__)
SPARSED_INLINE Vec Max(Vec a, Vec b) { return _mm512_maskz_max_ps(kAllLanes, b, a); }
#else
SPARSED_INLINE Vec Max(Vec a, Vec b) { return b > a ? b : a; }
#endif

SPARSED_INLINE float MaxLane(Vec v) {
  float best = v[0];
  for (int64_t i = 1; i < kLanes; ++i) best = v[i] > best ? v[i] : best;
  return best;
}
SPARSED_INLINE float SumLanes(Vec v) {  // pairwise, in a fixed order
  float lanes[kLanes];
  Store(lanes, v);
  for (int64_t step = kLanes / 2; step > 0; step /= 2) {
    for (int64_t i = 0; i < step; ++i) lanes[i] += lanes[i + step];
  }
  return lanes[0];
}

// 2^x for x <= 126, relative error below 2e-7; 2^0 is 1. NaN stays NaN. Polynomials: minimax of
// degree 5 for the relative error, constant term 1.
#if defined(__AVX512F__)
// 2^x = 2^floor(x) * 2^f with f in [0, 1): two instructions and a polynomial, any x.
SPARSED_INLINE Vec Exp2(Vec x) {
  const Vec f = _mm512_maskz_reduce_ps(kAllLanes, x, _MM_FROUND_TO_NEG_INF);
  Vec p = Splat(1.867130166e-3f);
  p = p * f + 9.017029777e-3f;
  p = p * f + 5.579991266e-2f;
  p = p * f + 2.401644439e-1f;
  p = p * f + 6.931512952e-1f;
  p = p * f + 1.0f;
  return _mm512_maskz_scalef_ps(kAllLanes, p, x);
}
#else
// 2^x = 2^n * 2^f, n = round(x), f in [-1/2, 1/2]. Inputs below -126 give 2^-126: beside a sum that
// is at least 1 that is as good as 0.
SPARSED_INLINE Vec Exp2(Vec x) {
  x = x < -126.0f ? Splat(-126.0f) : x;
  const Vec magic =
      Splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const Vec shifted = x + magic;
  const Vec f = x - (shifted - magic);
  Vec p = Splat(1.326472731e-3f);
  p = p * f + 9.671512991e-3f;
  p = p * f + 5.550733581e-2f;
  p = p * f + 2.402224243e-1f;
  p = p * f + 6.931470037e-1f;
  p = p * f + 1.0f;
  // The integer n stands in the low bits of `shifted`; shifted left it is 2^n's exponent field.
  return reinterpret_cast<Vec>(reinterpret_cast<VecInt>(p) +
                               (reinterpret_cast<VecInt>(shifted) << 23));
}
#endif

constexpr float kLog2E = 1.44269504f;

}  // namespace
}  // namespace sparsed::kernels::cpu
