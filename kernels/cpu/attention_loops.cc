// SPDX-License-Identifier: Apache-2.0
// The inner loops of attention, compiled once per instruction set like loops.cc.
// Queries are the lanes: logits, softmax state and output are held transposed, so that no loop
// reduces across a vector, keys and values are read as they lie (one broadcast per element) and
// tails of keys and head_dim are plain loop ends. Each logit and each output element is one chain of
// multiply-adds in ascending order, whatever the blocking.
#include "kernels/cpu/attention_loops.h"

#include "kernels/cpu/vector.h"

namespace sparsed::kernels::cpu::SPARSED_ISA {
namespace {

// kRows * kMaxVecs accumulators fit the registers beside a step's operands: 32 registers or 16.
#if defined(__AVX512F__)
constexpr int kRows = 8;
#else
constexpr int kRows = 6;
#endif
constexpr int kMaxVecs = 2;

// Logits of kKeys keys against kVecs vectors of queries.
template <int kKeys, int kVecs, int64_t kHeadDim>
SPARSED_INLINE void DotKeys(const float* queries, const float* keys, int64_t any_head_dim,
                            float* logits, Vec* max) {
  const int64_t head_dim = kHeadDim > 0 ? kHeadDim : any_head_dim;
  Vec sums[kKeys][kVecs] = {};
#pragma GCC unroll 4
  for (int64_t d = 0; d < head_dim; ++d) {
    Vec query[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) query[v] = Load(queries + d * kStripQueries + v * kLanes);
#pragma GCC unroll 16
    for (int key = 0; key < kKeys; ++key) {
      const Vec x = Splat(keys[key * head_dim + d]);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) sums[key][v] += x * query[v];
    }
  }
#pragma GCC unroll 16
  for (int key = 0; key < kKeys; ++key) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      Store(logits + key * kStripQueries + v * kLanes, sums[key][v]);
      max[v] = Max(max[v], sums[key][v]);
    }
  }
}

// All logits of a span; raises strip.max to their maximum.
template <int kVecs, int64_t kHeadDim>
SPARSED_INLINE void QueryKey(const Strip& strip, const Span& span) {
  Vec max[kVecs];
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) max[v] = Load(strip.max + v * kLanes);
  float* logits = strip.weights;
  for (int64_t run = 0; run < span.runs; ++run) {
    const float* keys = strip.keys + span.run[run].begin * strip.head_dim;
    const float* end = keys + span.run[run].count * strip.head_dim;
    for (; keys + kRows * strip.head_dim <= end; keys += kRows * strip.head_dim) {
      DotKeys<kRows, kVecs, kHeadDim>(strip.queries, keys, strip.head_dim, logits, max);
      logits += kRows * kStripQueries;
    }
    for (; keys < end; keys += strip.head_dim) {
      DotKeys<1, kVecs, kHeadDim>(strip.queries, keys, strip.head_dim, logits, max);
      logits += kStripQueries;
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) Store(strip.max + v * kLanes, max[v]);
}

// Logits become weights exp2(logit - max); sums per group of keys go to `group_sums`.
template <int kVecs>
SPARSED_INLINE void Exponentiate(const Strip& strip, int64_t keys, const Vec* max, Vec* total) {
  float* row = strip.weights;
  float* group_sums = strip.group_sums;
  for (int64_t begin = 0; begin < keys; begin += strip.group) {
    const int64_t count = begin + strip.group <= keys ? strip.group : keys - begin;
    Vec sums[kVecs] = {};
    for (int64_t key = 0; key < count; ++key, row += kStripQueries) {
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) {
        const Vec weight = Exp2(Load(row + v * kLanes) - max[v]);
        Store(row + v * kLanes, weight);
        sums[v] += weight;
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      Store(group_sums + v * kLanes, sums[v]);
      total[v] += sums[v];
    }
    group_sums += kStripQueries;
  }
}

// kDims output channels of a strip: out = out * rescale + values^T . weights.
template <int kDims, int kVecs, int64_t kHeadDim>
SPARSED_INLINE void WeighChannels(const Strip& strip, const Span& span, const Vec* rescale,
                                  int64_t channel) {
  const int64_t head_dim = kHeadDim > 0 ? kHeadDim : strip.head_dim;
  float* out = strip.out + channel * kStripQueries;
  Vec sums[kDims][kVecs];
#pragma GCC unroll 16
  for (int d = 0; d < kDims; ++d) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      sums[d][v] = Load(out + d * kStripQueries + v * kLanes) * rescale[v];
    }
  }
  const float* weights = strip.weights;
  for (int64_t run = 0; run < span.runs; ++run) {
    const float* values = strip.values + span.run[run].begin * head_dim + channel;
    const int64_t count = span.run[run].count;
#pragma GCC unroll 2
    for (int64_t key = 0; key < count; ++key, values += head_dim, weights += kStripQueries) {
      Vec weight[kVecs];
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) weight[v] = Load(weights + v * kLanes);
#pragma GCC unroll 16
      for (int d = 0; d < kDims; ++d) {
        const Vec x = Splat(values[d]);
#pragma GCC unroll 4
        for (int v = 0; v < kVecs; ++v) sums[d][v] += x * weight[v];
      }
    }
  }
#pragma GCC unroll 16
  for (int d = 0; d < kDims; ++d) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) Store(out + d * kStripQueries + v * kLanes, sums[d][v]);
  }
}

template <int kVecs, int64_t kHeadDim>
void AttendLanes(const Strip& strip, const Span& span) {
  Vec old_max[kVecs], max[kVecs], rescale[kVecs], sum[kVecs];
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) old_max[v] = Load(strip.max + v * kLanes);
  QueryKey<kVecs, kHeadDim>(strip, span);
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) {
    max[v] = Load(strip.max + v * kLanes);
    rescale[v] = Exp2(old_max[v] - max[v]);
    sum[v] = Load(strip.sum + v * kLanes) * rescale[v];
  }
  Exponentiate<kVecs>(strip, span.keys, max, sum);
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) Store(strip.sum + v * kLanes, sum[v]);
  if (strip.values == nullptr) return;
  int64_t channel = 0;
  for (; channel + kRows <= strip.head_dim; channel += kRows) {
    WeighChannels<kRows, kVecs, kHeadDim>(strip, span, rescale, channel);
  }
  for (; channel < strip.head_dim; ++channel) {
    WeighChannels<1, kVecs, kHeadDim>(strip, span, rescale, channel);
  }
}

// The first `lanes` queries: as many vectors at a time as the registers take.
template <int64_t kHeadDim>
void AttendHeadDim(Strip strip, const Span& span) {
  constexpr int64_t kStep = kMaxVecs * kLanes;
  for (int64_t lane = 0; lane < strip.lanes; lane += kStep) {
    if (strip.lanes - lane > kLanes) {
      AttendLanes<kMaxVecs, kHeadDim>(strip, span);
    } else {
      AttendLanes<1, kHeadDim>(strip, span);
    }
    strip.queries += kStep;
    strip.weights += kStep;
    strip.max += kStep;
    strip.sum += kStep;
    strip.group_sums += kStep;
    strip.out += kStep;
  }
}

}  // namespace

void Attend(const Strip& strip, const Span& span) {
  switch (strip.head_dim) {
    case 32:
      return AttendHeadDim<32>(strip, span);
    case 64:
      return AttendHeadDim<64>(strip, span);
    case 96:
      return AttendHeadDim<96>(strip, span);
    case 128:
      return AttendHeadDim<128>(strip, span);
    default:
      return AttendHeadDim<0>(strip, span);
  }
}

void FoldGroups(const float* group_sums, int64_t groups, const float* span_max, const float* max,
                const float* share, float* totals) {
  for (int64_t g = 0; g < groups; ++g) {
    Vec sum = {};
    for (int64_t lane = 0; lane < kStripQueries; lane += kLanes) {
      const Vec part = Load(share + lane);
      const Vec factor = Exp2(Load(span_max + lane) - Load(max + lane)) * part;
      // Lanes without a query hold anything, NaN as well.
      sum += part == 0.0f ? Vec{} : Load(group_sums + g * kStripQueries + lane) * factor;
    }
    totals[g] = SumLanes(sum);
  }
}

}  // namespace sparsed::kernels::cpu::SPARSED_ISA
