// SPDX-License-Identifier: Apache-2.0
// Products of tiles in shared memory, by tensor cores (bf16, fp16) or by fused multiply-adds (fp32).
// A warp owns 16 queries. Both ways leave a product in the same registers, the layout of mma.m16n8:
// thread `lane` holds of columns 8 j .. 8 j + 7
//   x[j][0], x[j][1]   row lane / 4,      columns 2 * (lane % 4), 2 * (lane % 4) + 1
//   x[j][2], x[j][3]   row lane / 4 + 8,  the same columns
// so that a row is spread over the four threads of a quad. Sums are fp32.
#pragma once

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

namespace sparsed::kernels::cuda {

constexpr int kWarpRows = 16;
constexpr int kWidthStep = 16;  // tiles are filled up with zeros to a multiple of that many columns

template <class T>
constexpr bool kTensorCores = !std::is_same_v<T, float>;

// Elements from one row of a tile to the next. 16 bytes more than the row: rows then start four
// banks apart, and eight of them do not meet in a bank.
template <class T>
__host__ __device__ constexpr int Pitch(int width) {
  return width + 16 / static_cast<int>(sizeof(T));
}

__device__ inline int Lane() { return static_cast<int>(threadIdx.x % 32); }
__device__ inline int Warp() { return static_cast<int>(threadIdx.x / 32); }

__device__ inline uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Four 8 x 8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
__device__ inline void LoadMatrices(const void* row, uint32_t (&x)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(SharedAddress(row))
               : "memory");
}

__device__ inline void LoadTransposedMatrices(const void* row, uint32_t (&x)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// c += a * b: 16 x 16 times 16 x 8.
template <class T>
__device__ inline void Multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

template <class T>
__device__ inline T Rounded(float x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else {
    return x;
  }
}

// Two neighbours in one register, the first in the low half.
template <class T>
__device__ inline uint32_t Packed(float low, float high) {
  union {
    T pair[2];
    uint32_t word;
  };
  pair[0] = Rounded<T>(low);
  pair[1] = Rounded<T>(high);
  return word;
}

// scores = queries (the warp's 16) times the tile's keys, both [.., Pitch(width)].
template <class T, int kTile>
__device__ inline void Scores(const T* queries, const T* keys, int width,
                              float (&scores)[kTile / 8][4]) {
  const int pitch = Pitch<T>(width);
  const int lane = Lane();
#pragma unroll
  for (auto& score : scores) {
    for (float& x : score) x = 0;
  }
  if constexpr (kTensorCores<T>) {
    const T* query = queries + lane % 16 * pitch + lane / 16 * 8;
    const T* key = keys + (lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * 8;
    for (int d = 0; d < width; d += 16) {
      uint32_t a[4];
      LoadMatrices(query + d, a);
#pragma unroll
      for (int n = 0; n < kTile; n += 16) {
        uint32_t b[4];
        LoadMatrices(key + n * pitch + d, b);
        Multiply<T>(scores[n / 8], a, b[0], b[1]);
        Multiply<T>(scores[n / 8 + 1], a, b[2], b[3]);
      }
    }
  } else {
    const T* query = queries + lane / 4 * pitch;
    const T* key = keys + lane % 4 * 2 * pitch;
    for (int d = 0; d < width; d += 4) {
      const float4 top = *reinterpret_cast<const float4*>(query + d);
      const float4 bottom = *reinterpret_cast<const float4*>(query + 8 * pitch + d);
#pragma unroll
      for (int n = 0; n < kTile; n += 8) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float4 k = *reinterpret_cast<const float4*>(key + (n + i) * pitch + d);
          float& above = scores[n / 8][i];
          float& below = scores[n / 8][i + 2];
          above = fmaf(top.w, k.w, fmaf(top.z, k.z, fmaf(top.y, k.y, fmaf(top.x, k.x, above))));
          below = fmaf(bottom.w, k.w,
                       fmaf(bottom.z, k.z, fmaf(bottom.y, k.y, fmaf(bottom.x, k.x, below))));
        }
      }
    }
  }
}

// Floats of shared memory in which a warp turns its weights over; only fp32 needs it.
template <class T, int kTile>
constexpr int kTurnFloats = kTensorCores<T> ? 0 : kWarpRows*(kTile + 4);

// out += weights (as Scores left them) times the tile's values, columns [0, width) of kColumns.
// turn: kTurnFloats of this warp.
template <class T, int kTile, int kColumns>
__device__ inline void AddValues(const float (&weights)[kTile / 8][4], const T* values, int width,
                                 float* turn, float (&out)[kColumns / 8][4]) {
  const int pitch = Pitch<T>(width);
  const int lane = Lane();
  if constexpr (kTensorCores<T>) {
    const T* value = values + lane % 16 * pitch + lane / 16 * 8;
#pragma unroll
    for (int key = 0; key < kTile; key += 16) {
      const float(&left)[4] = weights[key / 8];
      const float(&right)[4] = weights[key / 8 + 1];
      const uint32_t a[4] = {Packed<T>(left[0], left[1]), Packed<T>(left[2], left[3]),
                             Packed<T>(right[0], right[1]), Packed<T>(right[2], right[3])};
#pragma unroll
      for (int d = 0; d < kColumns; d += 16) {
        if (d < width) {
          uint32_t b[4];
          LoadTransposedMatrices(value + key * pitch + d, b);
          Multiply<T>(out[d / 8], a, b[0], b[1]);
          Multiply<T>(out[d / 8 + 1], a, b[2], b[3]);
        }
      }
    }
  } else {
    constexpr int kTurnPitch = kTile + 4;
    float* row = turn + lane / 4 * kTurnPitch;
    __syncwarp();  // all have read the last tile's weights
#pragma unroll
    for (int n = 0; n < kTile; n += 8) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        row[i / 2 * 8 * kTurnPitch + n + lane % 4 * 2 + i % 2] = weights[n / 8][i];
      }
    }
    __syncwarp();
    for (int key = 0; key < kTile; ++key) {
      const float top = row[key];
      const float bottom = row[8 * kTurnPitch + key];
      const T* value = values + key * pitch + lane % 4 * 2;
#pragma unroll
      for (int d = 0; d < kColumns; d += 8) {
        if (d < width) {
          const float2 v = *reinterpret_cast<const float2*>(value + d);
          out[d / 8][0] = fmaf(top, v.x, out[d / 8][0]);
          out[d / 8][1] = fmaf(top, v.y, out[d / 8][1]);
          out[d / 8][2] = fmaf(bottom, v.x, out[d / 8][2]);
          out[d / 8][3] = fmaf(bottom, v.y, out[d / 8][3]);
        }
      }
    }
  }
}

// Over the quad that shares a row.
__device__ inline float QuadMax(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ inline float QuadSum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

}  // namespace sparsed::kernels::cuda
