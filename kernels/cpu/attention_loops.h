// SPDX-License-Identifier: Apache-2.0
// One strip of queries against one span of keys: the unit of work of attention.cc, compiled per
// instruction set (isa.h). All matrices are fp32 and row-major.
#pragma once

#include <cstdint>

namespace sparsed::kernels::cpu {

// Queries of a strip: the lanes of two AVX-512 registers, and a divisor of every block size.
inline constexpr int64_t kStripQueries = 32;
// Most keys of a span: a strip's weights (16 KiB) stay in the first-level cache.
inline constexpr int64_t kSpanKeys = 128;

struct KeyRun {  // keys [begin, begin + count) of a row
  int64_t begin;
  int64_t count;
};

// Some kept keys of a strip, in ascending order. Blocks that are not adjacent share a span, so that
// small blocks cost no more softmax updates than large ones.
struct Span {
  int64_t keys = 0;  // of all runs
  int64_t runs = 0;
  KeyRun run[kSpanKeys / 32];
};

// A strip and the state of its online softmax, in the exp2 domain. Lanes beyond the last query are
// computed and ignored.
struct Strip {
  int64_t lanes = 0;  // 1 .. kStripQueries
  int64_t head_dim = 0;
  int64_t group = kSpanKeys;       // keys per element of group_sums; divides kSpanKeys
  const float* queries = nullptr;  // [head_dim, kStripQueries], scaled
  const float* keys = nullptr;     // [row length, head_dim]
  const float* values = nullptr;   // as keys; null: only the sums are wanted
  float* weights = nullptr;        // [kSpanKeys, kStripQueries] scratch
  float* max = nullptr;            // [kStripQueries] running maximum of the logits
  float* sum = nullptr;            // [kStripQueries] sum of exp2(logit - max)
  float* group_sums = nullptr;     // [kSpanKeys / group, kStripQueries] the span's, relative to max
  float* out = nullptr;            // [head_dim, kStripQueries] sum of exp2(logit - max) * value
};

}  // namespace sparsed::kernels::cpu
