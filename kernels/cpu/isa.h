// SPDX-License-Identifier: Apache-2.0
// The inner loops of the CPU operators, compiled once per instruction set and picked at run time.
// All matrices are fp32, row-major, strides in elements. Each output element is a sum in a fixed
// order, so results do not depend on how many rows share a call.
#pragma once

#include <cstdint>

#include "kernels/cpu/attention_loops.h"

namespace sparsed::kernels::cpu {

struct InnerLoops {
  const char* name;  // as in SPARSED_CPU_ISA

  // One online softmax update of a strip of queries with a span of keys (attention_loops.h): raises
  // max, rescales sum and out, and adds the span's part to them.
  void (*attend)(const Strip& strip, const Span& span);

  // totals[g] = sum over lanes of group_sums[g] * exp2(span_max - max) * share; share 0: no query.
  //   group_sums [groups, kStripQueries], the others [kStripQueries]
  void (*fold_groups)(const float* group_sums, int64_t groups, const float* span_max,
                      const float* max, const float* share, float* totals);

  // out = x / sqrt(mean(x^2) + eps) * weight.
  void (*rms_norm)(const float* x, const float* weight, int64_t width, float eps, float* out);

  // out = silu(gate) * up.
  void (*silu_mul)(const float* gate, const float* up, int64_t width, float* out);

  // (low, high) = (low * cos - high * sin, high * cos + low * sin).
  void (*rotate)(float* low, float* high, const float* cos, const float* sin, int64_t half);

  // Sum of exp(scale * (x - shift)).
  double (*exp_sum)(const float* x, int64_t n, float shift, float scale);
};

// The loops of one instruction set: avx512, avx2 (with FMA) or portable; of the best one that this
// processor has if the name is empty. Throws c10::ValueError if it has none of that name.
const InnerLoops& FindLoops(const char* name);

// What the operators use: FindLoops of the environment variable SPARSED_CPU_ISA, read at the first
// call. For tests and comparisons; unset or empty it is the best. Throws as FindLoops, every time.
const InnerLoops& Loops();

}  // namespace sparsed::kernels::cpu
