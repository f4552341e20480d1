// SPDX-License-Identifier: Apache-2.0
// Compiled once per instruction set, with SPARSED_ISA naming the namespace. Includes nothing that
// defines an inline function outside an anonymous namespace (see vector.h).
#include "kernels/cpu/isa.h"
#include "kernels/cpu/vector.h"

namespace sparsed::kernels::cpu::SPARSED_ISA {

void Attend(const Strip& strip, const Span& span);  // attention_loops.cc
void FoldGroups(const float* group_sums, int64_t groups, const float* span_max, const float* max,
                const float* share, float* totals);

namespace {

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

// Runs of 64 vectors in fp32, their sums in fp64: the error does not grow with n, however few lanes
// a vector has.
double ExpSum(const float* x, int64_t n, float shift, float scale) {
  constexpr int64_t kRun = 64 * kLanes;
  const float factor = scale * kLog2E;
  double total = 0;
  int64_t i = 0;
  while (i + kLanes <= n) {
    const int64_t end = i + kRun < n ? i + kRun : n;
    Vec sum = {};
    for (; i + kLanes <= end; i += kLanes) sum += Exp2((Load(x + i) - shift) * factor);
    total += static_cast<double>(SumLanes(sum));
  }
  if (i < n) {
    const Vec part = Exp2((LoadPart(x + i, n - i, shift) - shift) * factor);
    const Vec sum = LoadPart(reinterpret_cast<const float*>(&part), n - i, 0.0f);
    total += static_cast<double>(SumLanes(sum));
  }
  return total;
}

}  // namespace

extern const InnerLoops kLoops;
const InnerLoops kLoops = {SPARSED_ISA_NAME, Attend, FoldGroups, RmsNorm, SiluMul, Rotate, ExpSum};

}  // namespace sparsed::kernels::cpu::SPARSED_ISA
