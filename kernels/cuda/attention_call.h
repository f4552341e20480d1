// SPDX-License-Identifier: Apache-2.0
// What an attention call on CUDA is, without Torch: shared by the kernels that may serve it. Shapes
// and meaning are those of kernels/attention.h.
#pragma once

#include <cstdint>

#include "kernels/cuda/element.h"

namespace sparsed::kernels::cuda {

// One row of the packed batch.
struct AttentionRow {
  int64_t begin;         // first token in the packed batch
  int64_t length;        // tokens
  int64_t mask_offset;   // words into the arena; -1 = dense row
  int64_t block_tokens;  // of its mask and of its mass
  int64_t mass_offset;   // floats into mass; -1 = not wanted
};

// Pointers to device memory. Strides in elements; the last dimension has stride 1.
struct AttentionCall {
  const void* q;
  const void* k;
  const void* v;
  void* out;    // [tokens, heads, head_dim] contiguous, of q's element
  float* lse;   // [heads, tokens] natural log
  float* mass;  // nullptr if no row wants it
  const int32_t* mask_arena;
  int64_t tokens;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t q_stride_token;
  int64_t q_stride_head;
  int64_t k_stride_token;
  int64_t k_stride_head;
  int64_t v_stride_token;
  int64_t v_stride_head;
  Element element;
};

}  // namespace sparsed::kernels::cuda
