// SPDX-License-Identifier: Apache-2.0
// Tiles of tokens from global into shared memory. What is no token of the row, and what is beyond
// head_dim, becomes zeros there: neighbours are never read, so nothing of theirs can leak.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_call.h"
#include "kernels/cuda/portable/tile_math.cuh"

namespace sparsed::kernels::cuda {

// A tensor [tokens, heads, head_dim] on the device.
template <class T>
struct Tokens {
  const T* data;
  int64_t stride_token;
  int64_t stride_head;
  int32_t head_dim;
  bool vectors;  // every token can be read 16 bytes at a time

  __device__ const T* At(int64_t token, int64_t head) const {
    return data + token * stride_token + head * stride_head;
  }
};

template <class T>
Tokens<T> MakeTokens(const void* data, int64_t stride_token, int64_t stride_head,
                     int64_t head_dim) {
  constexpr int64_t kElements = 16 / sizeof(T);
  const bool vectors = reinterpret_cast<uintptr_t>(data) % 16 == 0 &&
                       stride_token % kElements == 0 && stride_head % kElements == 0 &&
                       head_dim % kElements == 0;
  return {static_cast<const T*>(data), stride_token, stride_head, static_cast<int32_t>(head_dim),
          vectors};
}

template <class T>
Tokens<T> QueriesOf(const AttentionCall& call) {
  return MakeTokens<T>(call.q, call.q_stride_token, call.q_stride_head, call.head_dim);
}
template <class T>
Tokens<T> KeysOf(const AttentionCall& call) {
  return MakeTokens<T>(call.k, call.k_stride_token, call.k_stride_head, call.head_dim);
}
template <class T>
Tokens<T> ValuesOf(const AttentionCall& call) {
  return MakeTokens<T>(call.v, call.v_stride_token, call.v_stride_head, call.head_dim);
}

// Columns of a tile.
inline int TileWidth(int64_t head_dim) {
  return static_cast<int>((head_dim + kWidthStep - 1) / kWidthStep * kWidthStep);
}

template <class T>
__device__ inline T Zero() {
  return Rounded<T>(0.0f);
}

// tile[i, 0 .. width) = the head_dim elements at token(i), or zeros where token(i) is nullptr.
// All threads take part; callers put barriers around it.
template <class T, int kTile, class TokenAt>
__device__ inline void LoadTile(const Tokens<T>& source, int width, TokenAt token, T* tile) {
  constexpr int kElements = 16 / sizeof(T);
  const int pitch = Pitch<T>(width);
  const auto threads = static_cast<int>(blockDim.x);
  if (source.vectors) {
    const int vectors = width / kElements;
    for (int i = static_cast<int>(threadIdx.x); i < kTile * vectors; i += threads) {
      const int d = i % vectors * kElements;
      const T* from = token(i / vectors);
      uint4 value = make_uint4(0, 0, 0, 0);
      if (from != nullptr && d < source.head_dim) value = *reinterpret_cast<const uint4*>(from + d);
      *reinterpret_cast<uint4*>(tile + i / vectors * pitch + d) = value;
    }
  } else {
    for (int i = static_cast<int>(threadIdx.x); i < kTile * width; i += threads) {
      const int d = i % width;
      const T* from = token(i / width);
      T value = Zero<T>();
      if (from != nullptr && d < source.head_dim) value = from[d];
      tile[i / width * pitch + d] = value;
    }
  }
}

// The tokens first .. first + kTile - 1 of a row, as far as it has them.
template <class T, int kTile>
__device__ inline void LoadRowTile(const Tokens<T>& source, int width, const AttentionRow& row,
                                   int64_t first, int64_t head, T* tile) {
  const T* base = source.At(row.begin + first, head);
  const int64_t count = row.length - first;
  LoadTile<T, kTile>(
      source, width, [&](int i) { return i < count ? base + i * source.stride_token : nullptr; },
      tile);
}

}  // namespace sparsed::kernels::cuda
