// SPDX-License-Identifier: Apache-2.0
// Statistics of candidate positions. Tiles of fixed size, a thread block each, read the logits
// once; one block per position combines its tiles in order. Sums do not depend on how many
// positions there are. Weights of draws are fp64: with 10^5 tokens the edges between them are close.
#include "kernels/cuda/candidate_launch.h"
#include "kernels/cuda/device.cuh"

namespace sparsed::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kItems = kTileTokens / kThreads;  // of a thread

// Orders logits as argmax does, NaN first, then numbers, equal ones by lower token.
__device__ uint64_t RankOf(float logit, int64_t token) {
  const uint32_t bits = __float_as_uint(logit + 0.0f);  // both zeros are one value
  uint32_t key = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  if (isnan(logit)) key = 0xffffffffu;
  return static_cast<uint64_t>(key) << 32 | (0xffffffffu - static_cast<uint32_t>(token));
}

__device__ int64_t TokenOf(uint64_t rank) {
  return 0xffffffffu - static_cast<uint32_t>(rank & 0xffffffffu);
}

__device__ double Weight(float logit, double max, double temperature) {
  return exp((static_cast<double>(logit) - max) / temperature);
}

// A thread's share of a tile is kItems / kVector<T> runs of logits, one access each.
template <class T>
__device__ int64_t RunOffset(int run) {
  return (run * kThreads + static_cast<int64_t>(threadIdx.x)) * kVector<T>;
}

// Beyond the vocabulary logits are -inf, which adds nothing to a sum.
template <bool kAligned, class T>
__device__ void LoadRun(const T* tile, int64_t valid, int run, float (&values)[kVector<T>]) {
  const int64_t offset = RunOffset<T>(run);
  if (offset < valid) {
    LoadVector<kAligned>(tile + offset, valid - offset, -INFINITY, values);
  } else {
#pragma unroll
    for (int i = 0; i < kVector<T>; ++i) values[i] = -INFINITY;
  }
}

struct TileStorage {
  BlockFold<uint64_t, kThreads>::Storage ranks;
  BlockFold<float, kThreads>::Storage floats;
  BlockFold<double, kThreads>::Storage doubles;
};

// The thread's part of a tile's weight. Reads the logits again, which are in the cache: this loop is
// not unrolled, and an array that a loop indexes would leave the registers.
template <bool kAligned, class T>
__device__ double TileWeight(const T* tile, int64_t valid, float shift, double temperature) {
  double weight = 0;
#pragma unroll 1
  for (int run = 0; run < kItems / kVector<T>; ++run) {
    float values[kVector<T>];
    LoadRun<kAligned>(tile, valid, run, values);
#pragma unroll
    for (int i = 0; i < kVector<T>; ++i) weight += Weight(values[i], shift, temperature);
  }
  return weight;
}

template <bool kAligned, class T>
__global__ void __launch_bounds__(kThreads)
    TileKernel(const __grid_constant__ CandidateParams params) {
  constexpr int kWidth = kVector<T>;
  constexpr int kRuns = kItems / kWidth;
  __shared__ TileStorage storage;
  const int64_t position = blockIdx.x / params.tiles;
  const int64_t first = blockIdx.x % params.tiles * kTileTokens;
  const int64_t valid = params.vocabulary - first;
  const T* tile = static_cast<const T*>(params.logits) + position * params.vocabulary + first;
  float values[kRuns][kWidth];
  uint64_t best = 0;
  float max = -INFINITY;
  bool finite = true;
#pragma unroll
  for (int run = 0; run < kRuns; ++run) LoadRun<kAligned>(tile, valid, run, values[run]);
#pragma unroll
  for (int run = 0; run < kRuns; ++run) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const int64_t offset = RunOffset<T>(run) + i;
      if (offset >= valid) continue;
      best = ::max(best, RankOf(values[run][i], first + offset));
      max = fmaxf(max, values[run][i]);  // of a number and NaN the number
      finite = finite && isfinite(values[run][i]);
    }
  }
  best = BlockFold<uint64_t, kThreads>(&storage.ranks)(
      best, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
  max = BlockFold<float, kThreads>(&storage.floats)(max,
                                                    [](float a, float b) { return fmaxf(a, b); });
  const bool all_finite = __syncthreads_and(finite) != 0;
  // Where everything is -inf, so is the maximum; differences to 0 leave sums of 0 or NaN.
  const float shift = max == -INFINITY ? 0.0f : max;
  float sum = 0;
#pragma unroll
  for (int run = 0; run < kRuns; ++run) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum += expf(values[run][i] - shift);
  }
  const double weight =
      params.temperature > 0 ? TileWeight<kAligned>(tile, valid, shift, params.temperature) : 0.0;
  BlockFold<double, kThreads> fold(&storage.doubles);
  const double total = fold.Sum(static_cast<double>(sum));
  const double total_weight = fold.Sum(weight);
  if (threadIdx.x == 0) {
    params.partials[blockIdx.x] = {total, total_weight, best, max, all_finite ? 1 : 0};
  }
}

// A position's tiles together.
struct Combined {
  double max;
  double sum;
  double weight;
  uint64_t best;
  bool finite;
};

// exp(difference of maxima) that brings a tile's sums to the position's maximum; a tile of -inf
// alone has sums of 0.
__device__ double TileFactor(const TilePartial& tile, double max, double temperature) {
  if (tile.max == -INFINITY) return 1.0;
  return exp((static_cast<double>(tile.max) - max) / temperature);
}

__device__ Combined Combine(const TilePartial* tiles, const CandidateParams& params) {
  Combined all{-INFINITY, 0, 0, 0, true};
  for (int64_t t = 0; t < params.tiles; ++t) {
    all.max = fmax(all.max, static_cast<double>(tiles[t].max));
    all.best = max(all.best, tiles[t].best);
    all.finite = all.finite && tiles[t].finite != 0;
  }
  for (int64_t t = 0; t < params.tiles; ++t) {
    all.sum += tiles[t].sum * TileFactor(tiles[t], all.max, 1.0);
    if (params.temperature > 0) {
      all.weight += tiles[t].weight * TileFactor(tiles[t], all.max, params.temperature);
    }
  }
  return all;
}

// The tile in which the cumulative weight passes `target`; *before is the weight of those before
// it. Rounding may leave the target unpassed: then the last tile that weighs something.
__device__ int64_t PassingTile(const TilePartial* tiles, const CandidateParams& params, double max,
                               double target, double* before) {
  int64_t last = 0;
  double cumulative = 0;
  for (int64_t t = 0; t < params.tiles; ++t) {
    const double weight = tiles[t].weight * TileFactor(tiles[t], max, params.temperature);
    if (!(weight > 0)) continue;
    last = t;
    *before = cumulative;
    cumulative += weight;
    if (cumulative > target) break;
  }
  return last;
}

struct Draw {
  double max;
  double target;  // cumulative weight to pass; negative if there is nothing to draw
  double before;  // weight of the tiles before `tile`
  int64_t tile;
};

// Consecutive logits of the drawn tile, kItems a thread.
template <class T>
class TileSegment {
 public:
  __device__ TileSegment(const CandidateParams& params, const Draw& draw, int64_t segment)
      : draw_(draw), temperature_(params.temperature) {
    first_ = draw.tile * kTileTokens + segment * kItems;
    const int64_t left = params.vocabulary - first_;
    count_ = static_cast<int>(left < 0 ? 0 : (left < kItems ? left : kItems));
    logits_ = static_cast<const T*>(params.logits) + blockIdx.x * params.vocabulary + first_;
  }

  __device__ double WeightAt(int i) const {
    return Weight(static_cast<float>(logits_[i]), draw_.max, temperature_);
  }

  __device__ double Sum() const {
    double sum = 0;
    for (int i = 0; i < count_; ++i) sum += WeightAt(i);
    return sum;
  }

  // The token where `cumulative`, the weight before the segment, grows beyond the target; else the
  // segment's last one that weighs something.
  __device__ int64_t PassingToken(double cumulative) const {
    int last = 0;
    for (int i = 0; i < count_; ++i) {
      const double weight = WeightAt(i);
      if (!(weight > 0)) continue;
      last = i;
      cumulative += weight;
      if (cumulative > draw_.target) break;
    }
    return first_ + last;
  }

 private:
  const Draw& draw_;
  double temperature_;
  int64_t first_;
  int count_;
  const T* logits_;
};

// `sums` [kThreads] of the drawn tile's segments, in shared memory. Called by one thread.
template <class T>
__device__ int64_t DrawnToken(const CandidateParams& params, const Draw& draw, const double* sums) {
  int64_t last = 0;
  double before = draw.before;
  double cumulative = draw.before;
  for (int64_t segment = 0; segment < kThreads; ++segment) {
    if (!(sums[segment] > 0)) continue;
    last = segment;
    before = cumulative;
    cumulative += sums[segment];
    if (cumulative > draw.target) break;
  }
  return TileSegment<T>(params, draw, last).PassingToken(before);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    CombineKernel(const __grid_constant__ CandidateParams params) {
  __shared__ Draw draw;
  __shared__ double sums[kThreads];
  const int64_t position = blockIdx.x;
  const TilePartial* tiles = params.partials + position * params.tiles;
  const bool draws = params.temperature > 0;
  Combined all{};
  if (threadIdx.x == 0) {
    all = Combine(tiles, params);
    draw = {all.max, -1.0, 0.0, 0};
    if (draws && all.weight > 0) {
      draw.target = params.uniforms[position] * all.weight;
      draw.tile = PassingTile(tiles, params, all.max, draw.target, &draw.before);
    }
  }
  __syncthreads();
  if (draw.target >= 0) {
    sums[threadIdx.x] = TileSegment<T>(params, draw, threadIdx.x).Sum();
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  // Logits that are NaN together (all -inf too) draw the first token.
  int64_t token = draws ? 0 : TokenOf(all.best);
  if (draw.target >= 0) token = DrawnToken<T>(params, draw, sums);
  const T* logits = static_cast<const T*>(params.logits) + position * params.vocabulary;
  params.token[position] = static_cast<int32_t>(token);
  params.probability[position] =
      static_cast<float>(Weight(static_cast<float>(logits[token]), all.max, 1.0) / all.sum);
  params.finite[position] = all.finite;
}

}  // namespace

void LaunchCandidateStatistics(const CandidateParams& params, cudaStream_t stream) {
  const auto tiles = static_cast<unsigned>(params.positions * params.tiles);
  const auto positions = static_cast<unsigned>(params.positions);
  DispatchElement(params.element, [&](auto type) {
    using T = typename decltype(type)::type;
    if (params.aligned) {
      TileKernel<true, T><<<tiles, kThreads, 0, stream>>>(params);
    } else {
      TileKernel<false, T><<<tiles, kThreads, 0, stream>>>(params);
    }
    CombineKernel<T><<<positions, kThreads, 0, stream>>>(params);
  });
}

}  // namespace sparsed::kernels::cuda
