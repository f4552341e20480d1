// SPDX-License-Identifier: Apache-2.0
// Tiles as in attention_portable.cu, of scores only.
#include <cmath>

#include "kernels/cuda/portable/key_walk.cuh"
#include "kernels/cuda/portable/launch.cuh"
#include "kernels/cuda/portable/mass.h"
#include "kernels/cuda/portable/row_chunk.h"
#include "kernels/cuda/portable/softmax.cuh"
#include "kernels/cuda/portable/tile_load.cuh"
#include "kernels/cuda/portable/tile_math.cuh"

namespace sparsed::kernels::cuda {
namespace {

template <class T>
struct Inputs {
  Tokens<T> q, k;
  int width;    // columns of a tile
  float scale;  // of the logits, times log2(e)
  int64_t first_key;
};

template <class T>
Inputs<T> MakeInputs(const AttentionCall& call, const SoftmaxRange& range) {
  return {QueriesOf<T>(call), KeysOf<T>(call), TileWidth(call.head_dim),
          static_cast<float>(range.scale * M_LOG2E), range.first_key};
}

template <class T>
size_t SharedBytes(int tile, int width) {  // queries; keys
  return size_t{2} * static_cast<size_t>(tile * Pitch<T>(width)) * sizeof(T);
}

// The two tiles in shared memory.
template <class T, int kTile>
struct SharedTiles {
  T* queries;
  T* keys;
  __device__ SharedTiles(uint4* shared, int width)
      : queries(reinterpret_cast<T*>(shared)), keys(queries + kTile * Pitch<T>(width)) {}
};

// The sum over all threads, for thread 0. Between two calls the threads must meet at a barrier.
template <int kWarps>
__device__ float BlockSum(float x) {
  __shared__ float warp_sums[kWarps];
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  }
  if (Lane() == 0) warp_sums[Warp()] = x;
  __syncthreads();
  float total = 0;  // in one order
  for (int warp = 0; warp < kWarps; ++warp) total += warp_sums[warp];
  return total;
}

// What a thread knows of its two queries.
struct QueryPair {
  float log_sum[2];  // base 2
  bool real[2];      // of the query block
};

// A query tile against one key block: this thread's share of the exponentials' sum.
template <class T, int kTile>
__device__ float BlockShare(const Inputs<T>& inputs, const AttentionRow& row, int64_t key_block,
                            int64_t kv_head, const SharedTiles<T, kTile>& tiles,
                            const QueryPair& pair) {
  const int64_t begin = key_block * row.block_tokens;
  const int64_t end = min(begin + row.block_tokens, row.length);
  float share = 0;
  for (int64_t key = begin; key < end; key += kTile) {
    __syncthreads();  // the last tile's keys have been used
    LoadRowTile<T, kTile>(inputs.k, inputs.width, row, key, kv_head, tiles.keys);
    __syncthreads();
    float logits[kTile / 8][4];
    Scores<T, kTile>(tiles.queries + Warp() * kWarpRows * Pitch<T>(inputs.width), tiles.keys,
                     inputs.width, logits);
    MakeLogits<kTile>(inputs.scale, end - key, logits);
#pragma unroll
    for (int j = 0; j < kTile / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (pair.real[i / 2]) share += exp2f(logits[j][i] - pair.log_sum[i / 2]);
      }
    }
  }
  return share;
}

// A thread block has one query block of one head, and fills its row of the mass.
template <class T, int kTile>
__global__ void __launch_bounds__(TileThreads(kTile))
    MassKernel(const __grid_constant__ AttentionCall call, const __grid_constant__ RowChunk chunk,
               const __grid_constant__ Inputs<T> inputs) {
  extern __shared__ uint4 shared[];
  const SharedTiles<T, kTile> tiles(shared, inputs.width);
  const Place place = FindPlace(chunk);
  const AttentionRow& row = chunk.rows[place.row];
  const int64_t kv_head = place.head * call.kv_heads / call.heads;
  const int64_t blocks = BlockCount(row.length, row.block_tokens);
  const int64_t first_block = inputs.first_key / row.block_tokens;
  const int64_t begin = place.unit * row.block_tokens;
  const int64_t end = min(begin + row.block_tokens, row.length);
  float* cells =
      call.mass + row.mass_offset + (place.head * blocks + place.unit) * (blocks - first_block);
  for (int64_t query = begin; query < end; query += kTile) {
    __syncthreads();  // the last queries have been used
    LoadRowTile<T, kTile>(inputs.q, inputs.width, row, query, place.head, tiles.queries);
    QueryPair pair;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t token = query + HalfRow(half);
      pair.real[half] = token < end;
      pair.log_sum[half] =
          pair.real[half] ? call.lse[place.head * call.tokens + row.begin + token] * kLog2E : 0.0f;
    }
    for (int64_t block = first_block; block < blocks; ++block) {
      const float total = BlockSum<kTile / kWarpRows>(
          BlockShare<T, kTile>(inputs, row, block, kv_head, tiles, pair));
      if (threadIdx.x != 0) continue;
      const float mean = total / static_cast<float>(end - begin);
      float& cell = cells[block - first_block];
      cell = query == begin ? mean : cell + mean;
    }
  }
}

// Sums of weights, all and those on kept blocks, of a thread's two rows.
struct Retained {
  OnlineSoftmax softmax;
  float kept[2] = {0, 0};
};

// The bitmap of a query, nullptr if the position is no token.
__device__ inline const int32_t* SampledMask(const AttentionCall& call,
                                             const SampledQueries& sample, int64_t head,
                                             int64_t position) {
  if (position < 0 || position >= call.tokens) return nullptr;
  const int64_t blocks = BlockCount(call.tokens, sample.block_tokens);
  return call.mask_arena + (head * blocks + position / sample.block_tokens) * MaskRowWords(blocks);
}

template <class T, int kTile>
__global__ void __launch_bounds__(TileThreads(kTile))
    SampleKernel(const __grid_constant__ AttentionCall call,
                 const __grid_constant__ SampledQueries sample,
                 const __grid_constant__ Inputs<T> inputs) {
  extern __shared__ uint4 shared[];
  const SharedTiles<T, kTile> tiles(shared, inputs.width);
  const int64_t head = blockIdx.x % call.heads;
  const int64_t first = blockIdx.x / call.heads * kTile;
  const int64_t kv_head = head * call.kv_heads / call.heads;
  const auto position = [&](int i) {
    return first + i < sample.count ? sample.positions[first + i] : int64_t{-1};
  };
  LoadTile<T, kTile>(
      inputs.q, inputs.width,
      [&](int i) {
        const int64_t token = position(i);
        return token >= 0 && token < call.tokens ? inputs.q.At(token, head) : nullptr;
      },
      tiles.queries);
  const int32_t* words[2] = {SampledMask(call, sample, head, position(HalfRow(0))),
                             SampledMask(call, sample, head, position(HalfRow(1)))};
  const AttentionRow row{0, call.tokens, -1, sample.block_tokens, -1};
  Retained retained;
  for (int64_t key = 0; key < call.tokens; key += kTile) {
    __syncthreads();  // the last keys have been used
    LoadRowTile<T, kTile>(inputs.k, inputs.width, row, key, kv_head, tiles.keys);
    __syncthreads();
    float logits[kTile / 8][4];
    Scores<T, kTile>(tiles.queries + Warp() * kWarpRows * Pitch<T>(inputs.width), tiles.keys,
                     inputs.width, logits);
    MakeLogits<kTile>(inputs.scale, call.tokens - key, logits);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float tile_sum;
      const float factor = retained.softmax.Visit<kTile>(half, logits, &tile_sum);
      const bool keep = words[half] != nullptr && MaskBit(words[half], key / sample.block_tokens);
      // As the sum of all, so that a full mask retains exactly 1.
      retained.kept[half] = fmaf(retained.kept[half], factor, keep ? tile_sum : 0.0f);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const double total = QuadSum(retained.softmax.sum[half]);
    const double kept = QuadSum(retained.kept[half]);
    const int64_t query = first + HalfRow(half);
    if (query >= sample.count || Lane() % 4 != 0) continue;
    sample.retained[head * sample.count + query] =
        words[half] == nullptr ? static_cast<double>(NAN) : kept / total;
  }
}

template <class T, int kTile>
cudaError_t LaunchMassChunks(const AttentionCall& call, const std::vector<AttentionRow>& rows,
                             const SoftmaxRange& range, cudaStream_t stream) {
  const Inputs<T> inputs = MakeInputs<T>(call, range);
  const auto query_blocks = [](const AttentionRow& row) {
    return BlockCount(row.length, row.block_tokens);
  };
  for (const RowChunk& chunk : MakeChunks(rows, query_blocks)) {
    const cudaError_t error =
        Launch(MassKernel<T, kTile>, chunk.first_unit[chunk.count] * call.heads, TileThreads(kTile),
               SharedBytes<T>(kTile, inputs.width), stream, call, chunk, inputs);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t LaunchPortableMass(const AttentionCall& call, const std::vector<AttentionRow>& rows,
                               const SoftmaxRange& range, cudaStream_t stream) {
  std::vector<AttentionRow> with_tile[2];  // large, small
  for (const AttentionRow& row : rows) with_tile[NeedsSmallTile(row.block_tokens)].push_back(row);
  return ForElement(call.element, [&](auto element) {
    using T = decltype(element);
    for (const bool small : {false, true}) {
      const cudaError_t error = ForTile<T>(small, [&](auto tile) {
        return LaunchMassChunks<T, decltype(tile)::value>(call, with_tile[small], range, stream);
      });
      if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
  });
}

cudaError_t LaunchPortableSample(const AttentionCall& call, const SampledQueries& sample,
                                 cudaStream_t stream) {
  return ForElement(call.element, [&](auto element) {
    using T = decltype(element);
    const Inputs<T> inputs = MakeInputs<T>(call, WholeRange(call));
    return ForTile<T>(NeedsSmallTile(sample.block_tokens), [&](auto tile) {
      constexpr int kTile = decltype(tile)::value;
      return Launch(SampleKernel<T, kTile>, BlockCount(sample.count, kTile) * call.heads,
                    TileThreads(kTile), SharedBytes<T>(kTile, inputs.width), stream, call, sample,
                    inputs);
    });
  });
}

}  // namespace sparsed::kernels::cuda
