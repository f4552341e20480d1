// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/score_launch.h"

namespace sparsed::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// Per thread block one block of tokens of one head. `lanes` threads cover a token's channels, such
// groups of threads take turns at the tokens, and their sums meet in shared memory, in order. Two
// passes, the second one out of the cache: a sum of squares would lose the variance of channels
// that are far from zero.
template <bool kAligned, class T>
__global__ void __launch_bounds__(kThreads)
    StatisticsKernel(const __grid_constant__ BlockStatisticsParams params, int lanes) {
  constexpr int kWidth = kVector<T>;
  __shared__ float sums[kThreads * kWidth];  // [groups][lanes * kWidth]
  __shared__ float means[kThreads * kWidth];
  const int group = static_cast<int>(threadIdx.x) / lanes;
  const int groups = kThreads / lanes;
  const int first_channel = static_cast<int>(threadIdx.x) % lanes * kWidth;
  const int channels = lanes * kWidth;  // of one round
  const int64_t blocks = (params.tokens + params.block_tokens - 1) / params.block_tokens;
  const int64_t token = blockIdx.x % blocks * params.block_tokens;
  const int64_t left = params.tokens - token;
  const auto count = static_cast<int>(left < params.block_tokens ? left : params.block_tokens);
  const float share = 1.0f / static_cast<float>(count);
  const T* x = static_cast<const T*>(params.x) + token * params.token_stride +
               blockIdx.x / blocks * params.head_stride;
  for (int64_t base = 0; base < params.head_dim; base += channels) {
    const int64_t valid = params.head_dim - base - first_channel;
    for (int pass = 0; pass < 2; ++pass) {
      float sum[kWidth] = {};
      for (int t = group; t < count && valid > 0; t += groups) {
        float values[kWidth];
        LoadVector<kAligned>(x + t * params.token_stride + base + first_channel, valid, 0.0f,
                             values);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          const float deviation = pass == 0 ? 0.0f : values[i] - means[first_channel + i];
          sum[i] = pass == 0 ? sum[i] + values[i] : fmaf(deviation, deviation, sum[i]);
        }
      }
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sums[group * channels + first_channel + i] = sum[i];
      __syncthreads();
      float* out =
          (pass == 0 ? params.mean : params.variance) + blockIdx.x * params.head_dim + base;
      for (int c = static_cast<int>(threadIdx.x); c < channels; c += kThreads) {
        float total = 0;
        for (int g = 0; g < groups; ++g) total += sums[g * channels + c];
        if (pass == 0) means[c] = total * share;
        if (base + c < params.head_dim) out[c] = total * share;
      }
      __syncthreads();
    }
  }
}

template <class T>
void LaunchStatistics(const BlockStatisticsParams& params, cudaStream_t stream) {
  int lanes = 1;
  while (lanes < kThreads && int64_t{lanes} * kVector<T> < params.head_dim) lanes *= 2;
  const int64_t blocks = (params.tokens + params.block_tokens - 1) / params.block_tokens;
  const auto grid = static_cast<unsigned>(params.heads * blocks);
  if (params.aligned) {
    StatisticsKernel<true, T><<<grid, kThreads, 0, stream>>>(params, lanes);
  } else {
    StatisticsKernel<false, T><<<grid, kThreads, 0, stream>>>(params, lanes);
  }
}

// Tiles of the logits' matrix product: kTile x kTile per thread block, kMicro x kMicro per thread,
// kDepth channels at a time through shared memory.
constexpr int kTile = 64;
constexpr int kMicro = 4;
constexpr int kDepth = 16;
static_assert(kTile / kMicro * (kTile / kMicro) == kThreads);
constexpr int kPitch = kTile + 4;  // a multiple of 4 floats, and no power of two

using Slab = float[kDepth][kPitch];

// The products that a logit sums: which of the factors of a block and channel meet in `term`.
struct QueryFactor {
  const float* mean;
  const float* variance;
  float scale;  // of the mean; 1 / head_dim is the others'
  float share;

  __device__ float operator()(int64_t i, int term) const {
    if (term == 0) return mean[i] * scale;
    return term == 1 ? variance[i] * share : mean[i] * mean[i] * share;
  }
};

struct KeyFactor {
  const float* mean;
  const float* variance;

  __device__ float operator()(int64_t i, int term) const {
    if (term == 0) return mean[i];
    return term == 1 ? fmaf(mean[i], mean[i], variance[i]) : variance[i];
  }
};

// slab[channel][block] for kTile blocks from first_block on; 0 outside.
template <class Factor>
__device__ void LoadSlab(const BlockLogitsParams& params, const Factor& factor, int64_t first_block,
                         int64_t first_channel, int term, Slab& slab) {
#pragma unroll
  for (int i = 0; i < kTile * kDepth / kThreads; ++i) {
    const int index = i * kThreads + static_cast<int>(threadIdx.x);
    const int64_t channel = first_channel + index % kDepth;
    const int64_t block = first_block + index / kDepth;
    const bool inside = channel < params.head_dim && block < params.blocks;
    slab[index % kDepth][index / kDepth] =
        inside ? factor(block * params.head_dim + channel, term) : 0.0f;
  }
}

__device__ void Multiply(const Slab& queries, const Slab& keys, int row, int column,
                         float (&sum)[kMicro][kMicro]) {
#pragma unroll
  for (int d = 0; d < kDepth; ++d) {
    float q[kMicro];
    float k[kMicro];
#pragma unroll
    for (int i = 0; i < kMicro; ++i) q[i] = queries[d][row + i];
#pragma unroll
    for (int i = 0; i < kMicro; ++i) k[i] = keys[d][column + i];
#pragma unroll
    for (int i = 0; i < kMicro; ++i) {
#pragma unroll
      for (int j = 0; j < kMicro; ++j) sum[i][j] = fmaf(q[i], k[j], sum[i][j]);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    LogitsKernel(const __grid_constant__ BlockLogitsParams params) {
  __shared__ __align__(16) Slab queries;
  __shared__ __align__(16) Slab keys;
  const int64_t tiles = (params.blocks + kTile - 1) / kTile;
  const int64_t head = blockIdx.x / (tiles * tiles);
  const int64_t tile = blockIdx.x % (tiles * tiles);
  const int64_t first_query = tile / tiles * kTile;
  const int64_t first_key = tile % tiles * kTile;
  const int64_t head_size = params.blocks * params.head_dim;
  const int64_t q = head * head_size;
  const int64_t k = head / (params.heads / params.kv_heads) * head_size;
  const auto head_dim = static_cast<float>(params.head_dim);
  const QueryFactor query{params.q_mean + q, params.q_variance + q, 1.0f / sqrtf(head_dim),
                          1.0f / head_dim};
  const KeyFactor key{params.k_mean + k, params.k_variance + k};
  const int row = static_cast<int>(threadIdx.x) / (kTile / kMicro) * kMicro;
  const int column = static_cast<int>(threadIdx.x) % (kTile / kMicro) * kMicro;
  float sum[kMicro][kMicro] = {};
  for (int term = 0; term < (params.covariance ? 3 : 1); ++term) {
    for (int64_t channel = 0; channel < params.head_dim; channel += kDepth) {
      LoadSlab(params, query, first_query, channel, term, queries);
      LoadSlab(params, key, first_key, channel, term, keys);
      __syncthreads();
      Multiply(queries, keys, row, column, sum);
      __syncthreads();
    }
  }
  float* logits = params.logits + head * params.blocks * params.blocks;
#pragma unroll
  for (int i = 0; i < kMicro; ++i) {
#pragma unroll
    for (int j = 0; j < kMicro; ++j) {
      const int64_t r = first_query + row + i;
      const int64_t c = first_key + column + j;
      if (r >= params.blocks || c >= params.blocks) continue;
      logits[r * params.blocks + c] =
          sum[i][j] + (c == params.blocks - 1 ? params.last_block_term : 0.0f);
    }
  }
}

}  // namespace

void LaunchBlockStatistics(const BlockStatisticsParams& params, cudaStream_t stream) {
  DispatchElement(params.element, [&](auto type) {
    LaunchStatistics<typename decltype(type)::type>(params, stream);
  });
}

void LaunchBlockLogits(const BlockLogitsParams& params, cudaStream_t stream) {
  const int64_t tiles = (params.blocks + kTile - 1) / kTile;
  const auto grid = static_cast<unsigned>(params.heads * tiles * tiles);
  LogitsKernel<<<grid, kThreads, 0, stream>>>(params);
}

}  // namespace sparsed::kernels::cuda
