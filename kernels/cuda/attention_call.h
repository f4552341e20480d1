// SPDX-License-Identifier: Apache-2.0
// An attention call as the CUDA kernels see it: raw pointers, strides in elements. Shapes and rules:
// kernels/attention.h. No Torch types, so that .cu files compile in seconds.
#pragma once

#include <cstdint>

namespace sparsed::kernels::cuda {

enum class Element { kFloat, kBfloat16, kHalf };

struct AttentionRow {
  int64_t begin;   // first token in the packed batch
  int64_t length;  // tokens
  int64_t mask_offset;  // first word in the arena; -1 = dense
  int64_t block_tokens;
  int64_t mass_offset;  // first number in mass; -1 = not wanted
};

struct AttentionCall {
  const void* q;
  const void* k;
  const void* v;
  void* out;    // [tokens, heads, head_dim] contiguous
  float* lse;   // [heads, tokens], natural logarithm
  float* mass;  // may be null where no row wants it
  const int32_t* mask_arena;
  int64_t tokens;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t q_stride_token, q_stride_head;
  int64_t k_stride_token, k_stride_head;
  int64_t v_stride_token, v_stride_head;
  Element element;
};

}  // namespace sparsed::kernels::cuda
