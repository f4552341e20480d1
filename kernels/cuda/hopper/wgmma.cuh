// SPDX-License-Identifier: Apache-2.0
// The two matrix products of attention on a warpgroup: S = Q K^T with both operands in shared
// memory, O += P V with P in registers. Shared memory is slabs of 64 channels, [rows][128 bytes],
// 128-byte swizzled as the tensor maps write them.
//
// Accumulators of 64 x N: thread t of a warp holds, for n = 0 .. N/8 - 1, d[4n], d[4n + 1] of row
// t / 4, columns 8n + 2 (t % 4) and the next, and d[4n + 2], d[4n + 3] of row t / 4 + 8.
#pragma once

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <utility>

#include <cute/arch/mma_sm90_desc.hpp>
#include <cute/arch/mma_sm90_gmma.hpp>
#include <cute/arch/util.hpp>

#include "kernels/cuda/hopper/traits.cuh"

namespace sparsed::kernels::cuda::hopper {

namespace gmma = cute::SM90::GMMA;

template <class Element, int columns>
struct Instructions;

template <>
struct Instructions<__nv_bfloat16, 64> {
  using Scores = gmma::MMA_64x64x16_F32BF16BF16_SS<gmma::Major::K, gmma::Major::K>;
  using Values = gmma::MMA_64x64x16_F32BF16BF16_RS<gmma::Major::K, gmma::Major::MN>;
};
template <>
struct Instructions<__nv_bfloat16, 128> {
  using Scores = gmma::MMA_64x128x16_F32BF16BF16_SS<gmma::Major::K, gmma::Major::K>;
  using Values = gmma::MMA_64x128x16_F32BF16BF16_RS<gmma::Major::K, gmma::Major::MN>;
};
template <>
struct Instructions<__half, 64> {
  using Scores = gmma::MMA_64x64x16_F32F16F16_SS<gmma::Major::K, gmma::Major::K>;
  using Values = gmma::MMA_64x64x16_F32F16F16_RS<gmma::Major::K, gmma::Major::MN>;
};
template <>
struct Instructions<__half, 128> {
  using Scores = gmma::MMA_64x128x16_F32F16F16_SS<gmma::Major::K, gmma::Major::K>;
  using Values = gmma::MMA_64x128x16_F32F16F16_RS<gmma::Major::K, gmma::Major::MN>;
};

// Descriptor of an operand whose contraction is along the channels: 8-row groups follow each other.
__device__ inline uint64_t ChannelMajor(const uint8_t* start) {
  cute::GmmaDescriptor d;
  d.bitfield.start_address_ = cute::cast_smem_ptr_to_uint(start) >> 4;
  d.bitfield.leading_byte_offset_ = 1;
  d.bitfield.stride_byte_offset_ = 8 * kSlabRowBytes >> 4;
  d.bitfield.layout_type_ = 1;  // 128-byte swizzle
  return d.desc_;
}

// Descriptor of V, whose contraction is along the rows: slabs are slab_bytes apart.
__device__ inline uint64_t RowMajor(const uint8_t* start, int slab_bytes) {
  cute::GmmaDescriptor d;
  d.bitfield.start_address_ = cute::cast_smem_ptr_to_uint(start) >> 4;
  d.bitfield.leading_byte_offset_ = slab_bytes >> 4;
  d.bitfield.stride_byte_offset_ = 8 * kSlabRowBytes >> 4;
  d.bitfield.layout_type_ = 1;
  return d.desc_;
}

template <size_t n>
__device__ void Fence(float (&registers)[n]) {
#pragma unroll
  for (size_t i = 0; i < n; ++i) cute::warpgroup_fence_operand(registers[i]);
}

// s = Q K^T, 64 queries x kKeyTile keys; one committed group, not waited for.
template <class T>
__device__ void IssueScores(float (&s)[T::kKeyTile / 2], const uint8_t* q, const uint8_t* k) {
  using Mma = typename Instructions<typename T::Element, T::kKeyTile>::Scores;
  Fence(s);
  cute::warpgroup_arrive();
  const uint64_t q_start = ChannelMajor(q);
  const uint64_t k_start = ChannelMajor(k);
#pragma unroll
  for (int step = 0; step < T::kHeadDim / 16; ++step) {
    const int within = step % 4 * 32 >> 4;  // 16 channels are 32 bytes
    const int q_offset = (step / 4 * kQueries * kSlabRowBytes >> 4) + within;
    const int k_offset = (step / 4 * T::kKeyTile * kSlabRowBytes >> 4) + within;
    const auto scale = step == 0 ? gmma::ScaleOut::Zero : gmma::ScaleOut::One;
    [&]<size_t... i>(std::index_sequence<i...>) {
      Mma::fma(q_start + q_offset, k_start + k_offset, s[i]..., scale);
    }
    (std::make_index_sequence<T::kKeyTile / 2>{});
  }
  cute::warpgroup_commit_batch();
  Fence(s);
}

// o (+)= P V, 64 queries x kHeadDim channels; one committed group, not waited for.
// p: weights rounded to Element, two a register, in the order of the scores' accumulators.
template <class T>
__device__ void IssueValues(float (&o)[T::kHeadDim / 2], uint32_t (&p)[T::kKeyTile / 4],
                            const uint8_t* v, bool accumulate) {
  using Mma = typename Instructions<typename T::Element, T::kHeadDim>::Values;
  Fence(o);
  cute::warpgroup_arrive();
  const uint64_t v_start = RowMajor(v, T::kKeyTile * kSlabRowBytes);
#pragma unroll
  for (int step = 0; step < T::kKeyTile / 16; ++step) {
    const uint64_t v_step = v_start + (step * 16 * kSlabRowBytes >> 4);
    const auto scale = step == 0 && !accumulate ? gmma::ScaleOut::Zero : gmma::ScaleOut::One;
    [&]<size_t... i>(std::index_sequence<i...>) {
      Mma::fma(p[4 * step], p[4 * step + 1], p[4 * step + 2], p[4 * step + 3], v_step, o[i]...,
               scale);
    }
    (std::make_index_sequence<T::kHeadDim / 2>{});
  }
  cute::warpgroup_commit_batch();
  Fence(o);
}

}  // namespace sparsed::kernels::cuda::hopper
