// SPDX-License-Identifier: Apache-2.0
// Launches of fused.cu. Pointers are device pointers, strides count elements, last strides are 1;
// `aligned`: every row is a whole number of 16-byte accesses.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>

#include "kernels/cuda/element.h"

namespace sparsed::kernels::cuda {

struct RmsNormParams {
  const void* x;  // [tokens, width]
  const void* weight;
  void* out;  // contiguous
  Element element;
  bool aligned;
  int64_t token_stride;
  int64_t tokens;
  int64_t width;
  float eps;
};
void LaunchRmsNorm(const RmsNormParams& params, cudaStream_t stream);

// Rows of a packed batch that one launch of Rope takes; they travel with the launch, because the
// list is host memory that may be gone when the kernel runs.
constexpr int kRopeRows = 64;
struct RopeParams {
  void* x;           // [tokens, heads, head_dim]
  const float* cos;  // [positions, head_dim / 2]
  const float* sin;
  Element element;
  bool aligned;  // the halves of head_dim too, and the rows of cos and sin
  int64_t token_stride;
  int64_t head_stride;
  int64_t heads;
  int64_t head_dim;
  int rows;
  int64_t offsets[kRopeRows + 1];  // row r is the tokens offsets[r] .. offsets[r + 1] - 1
};
void LaunchRope(const RopeParams& params, cudaStream_t stream);

struct SiluMulParams {
  const void* gate_up;  // [tokens, 2 * width]
  void* out;            // [tokens, width], contiguous
  Element element;
  bool aligned;
  int64_t token_stride;
  int64_t tokens;
  int64_t width;
};
void LaunchSiluMul(const SiluMulParams& params, cudaStream_t stream);

}  // namespace sparsed::kernels::cuda
