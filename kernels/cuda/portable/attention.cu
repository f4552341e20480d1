// SPDX-License-Identifier: Apache-2.0
// A thread block has one head's tile of 64 queries (32 if blocks are that small, or elements fp32)
// and visits its keys in tiles of as many, in ascending order. Keys and then values of a tile share
// one buffer, so that head_dim 256 fits the 99 KiB of the smallest sm_8x.
#include <cmath>

#include "kernels/cuda/portable/attention.h"
#include "kernels/cuda/portable/key_walk.cuh"
#include "kernels/cuda/portable/launch.cuh"
#include "kernels/cuda/portable/row_chunk.h"
#include "kernels/cuda/portable/softmax.cuh"
#include "kernels/cuda/portable/tile_load.cuh"
#include "kernels/cuda/portable/tile_math.cuh"

namespace sparsed::kernels::cuda {
namespace {

template <class T>
struct Inputs {
  Tokens<T> q, k, v;
  int width;    // columns of a tile
  float scale;  // of the logits, times log2(e)
  int64_t first_key;
};

// Eights of columns that a thread holds; an array of none is no C++.
template <int kColumns>
constexpr int kOutTiles = kColumns > 0 ? kColumns / 8 : 1;

template <class T, int kTile>
constexpr size_t TurnBytes() {
  return sizeof(float) * kTurnFloats<T, kTile> * (kTile / kWarpRows);
}

template <class T, int kTile>
size_t SharedBytes(int width) {  // queries; keys or values; turned weights
  return size_t{2} * kTile * Pitch<T>(width) * sizeof(T) + TurnBytes<T, kTile>();
}

template <class T>
__device__ void StoreRow(const AttentionCall& call, int64_t token, int64_t head, int column,
                         float first, float second) {
  T* out = static_cast<T*>(call.out) + (token * call.heads + head) * call.head_dim;
  if (column < call.head_dim) out[column] = Rounded<T>(first);
  if (column + 1 < call.head_dim) out[column + 1] = Rounded<T>(second);
}

template <class T, int kColumns>
__device__ void Store(const AttentionCall& call, const AttentionRow& row, const Place& place,
                      int64_t first_query, const OnlineSoftmax& softmax,
                      const float (&out)[kOutTiles<kColumns>][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = QuadSum(softmax.sum[half]);
    const int64_t query = first_query + HalfRow(half);
    if (query >= row.length) continue;
    const int64_t token = row.begin + query;
    if (Lane() % 4 == 0) call.lse[place.head * call.tokens + token] = softmax.LogSum(half, total);
    const float inverse = total == 0.0f ? 0.0f : 1.0f / total;
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
      StoreRow<T>(call, token, place.head, j * 8 + Lane() % 4 * 2, out[j][half * 2] * inverse,
                  out[j][half * 2 + 1] * inverse);
    }
  }
}

// kColumns: of the output, at least head_dim; 0 = lse alone.
template <class T, int kTile, int kColumns>
__global__ void __launch_bounds__(TileThreads(kTile))
    AttentionKernel(const __grid_constant__ AttentionCall call,
                    const __grid_constant__ RowChunk chunk,
                    const __grid_constant__ Inputs<T> inputs) {
  extern __shared__ uint4 shared[];
  const int width = inputs.width;
  const int pitch = Pitch<T>(width);
  T* queries = reinterpret_cast<T*>(shared);
  T* tokens = queries + kTile * pitch;
  float* turn = reinterpret_cast<float*>(tokens + kTile * pitch) + Warp() * kTurnFloats<T, kTile>;

  const Place place = FindPlace(chunk);
  const AttentionRow& row = chunk.rows[place.row];
  const int64_t first_query = place.unit * kTile;
  const int64_t kv_head = place.head * call.kv_heads / call.heads;
  LoadRowTile<T, kTile>(inputs.q, width, row, first_query, place.head, queries);

  OnlineSoftmax softmax;
  float out[kOutTiles<kColumns>][4] = {};
  KeyWalk<kTile> walk(MaskWordsOf(call, row, place.head, first_query), row, inputs.first_key);
  for (int64_t key = 0; walk.Next(&key);) {
    __syncthreads();  // the last tile's values have been used
    LoadRowTile<T, kTile>(inputs.k, width, row, key, kv_head, tokens);
    __syncthreads();
    float weights[kTile / 8][4];
    Scores<T, kTile>(queries + Warp() * kWarpRows * pitch, tokens, width, weights);
    MakeLogits<kTile>(inputs.scale, row.length - key, weights);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float tile_sum;
      const float factor = softmax.Visit<kTile>(half, weights, &tile_sum);
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
        out[j][half * 2] *= factor;
        out[j][half * 2 + 1] *= factor;
      }
    }
    if constexpr (kColumns > 0) {
      __syncthreads();  // the keys have been used
      LoadRowTile<T, kTile>(inputs.v, width, row, key, kv_head, tokens);
      __syncthreads();
      AddValues<T, kTile, kColumns>(weights, tokens, width, turn, out);
    }
  }
  Store<T, kColumns>(call, row, place, first_query, softmax, out);
}

template <class T, int kTile, int kColumns>
cudaError_t LaunchChunks(const AttentionCall& call, const std::vector<AttentionRow>& rows,
                         const SoftmaxRange& range, cudaStream_t stream) {
  Inputs<T> inputs{};
  inputs.q = QueriesOf<T>(call);
  inputs.k = KeysOf<T>(call);
  if (kColumns > 0) inputs.v = ValuesOf<T>(call);
  inputs.width = TileWidth(call.head_dim);
  inputs.scale = static_cast<float>(range.scale * M_LOG2E);
  inputs.first_key = range.first_key;
  const auto tiles = [](const AttentionRow& row) { return BlockCount(row.length, kTile); };
  for (const RowChunk& chunk : MakeChunks(rows, tiles)) {
    const cudaError_t error = Launch(
        AttentionKernel<T, kTile, kColumns>, chunk.first_unit[chunk.count] * call.heads,
        TileThreads(kTile), SharedBytes<T, kTile>(inputs.width), stream, call, chunk, inputs);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

template <class T, int kTile>
cudaError_t LaunchColumns(const AttentionCall& call, const std::vector<AttentionRow>& rows,
                          const SoftmaxRange& range, bool with_output, cudaStream_t stream) {
  if (!with_output) return LaunchChunks<T, kTile, 0>(call, rows, range, stream);
  if (call.head_dim <= 64) return LaunchChunks<T, kTile, 64>(call, rows, range, stream);
  if (call.head_dim <= 128) return LaunchChunks<T, kTile, 128>(call, rows, range, stream);
  return LaunchChunks<T, kTile, 256>(call, rows, range, stream);
}

// Dense rows take large tiles at any block size: what a row gives does not depend on the others.
cudaError_t LaunchRows(const AttentionCall& call, const std::vector<AttentionRow>& rows,
                       const SoftmaxRange& range, bool with_output, cudaStream_t stream) {
  std::vector<AttentionRow> with_tile[2];  // large, small
  for (const AttentionRow& row : rows) {
    with_tile[row.mask_offset >= 0 && NeedsSmallTile(row.block_tokens)].push_back(row);
  }
  return ForElement(call.element, [&](auto element) {
    using T = decltype(element);
    for (const bool small : {false, true}) {
      const cudaError_t error = ForTile<T>(small, [&](auto tile) {
        return LaunchColumns<T, decltype(tile)::value>(call, with_tile[small], range, with_output,
                                                       stream);
      });
      if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
  });
}

}  // namespace

SoftmaxRange WholeRange(const AttentionCall& call) {
  return {1 / std::sqrt(static_cast<double>(call.head_dim)), 0};
}

cudaError_t LaunchPortableAttention(const AttentionCall& call,
                                    const std::vector<AttentionRow>& rows, cudaStream_t stream) {
  return LaunchRows(call, rows, WholeRange(call), /*with_output=*/true, stream);
}

cudaError_t LaunchPortableLse(const AttentionCall& call, const std::vector<AttentionRow>& rows,
                              const SoftmaxRange& range, cudaStream_t stream) {
  return LaunchRows(call, rows, range, /*with_output=*/false, stream);
}

}  // namespace sparsed::kernels::cuda
