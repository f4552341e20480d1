// SPDX-License-Identifier: Apache-2.0
// Attention over packed rows, each dense or block-sparse. Bidirectional: no causal mask.
// Equation: softmax(q k^T / sqrt(head_dim)) v over the kept key blocks; online softmax: Dao et al.
// 2022.
//
//   q            [tokens, heads, head_dim]     fp32 or bf16, last stride 1
//                                              head_dim 1 .. 256; 32, 64, 96, 128 have own loops
//   k, v         [tokens, kv_heads, head_dim]  as q; heads % kv_heads == 0; head h reads kv head
//                                              h * kv_heads / heads
//   row_offsets  [rows + 1]  int64  0 first, strictly increasing, last == tokens
//   mask_arena   [words]     int32  block masks of all rows (block_mask.h)
//   mask_offsets [rows]      int64  first word of the row's mask; -1 = dense row
//   block_tokens [rows]      int64  block size of the row: 32, 64, 128 or 256
//   -> out  [tokens, heads, head_dim] contiguous, of q's dtype; lse [heads, tokens] fp32, natural log
//
// row_offsets, mask_offsets and block_tokens live on the CPU for every device; in the operator's
// schema, and so in Python, they are lists of ints (ops/lists.h).
// Cost: 4 * head_dim * block_tokens^2 FLOP per kept block and head; dropped blocks are neither read
// nor computed. Exact on kept blocks, fp32 sums, tails cut at the row's length. A row's bits do not
// depend on its batch. A query block that keeps no key block gives zeros and lse -inf. NaN and Inf
// stay inside their row. Throws c10::ValueError naming the argument.
#pragma once

#include <tuple>

#include <ATen/core/Tensor.h>

namespace sparsed::kernels {

// The packing of a batch, as described above.
struct PackedRows {
  at::Tensor row_offsets;
  at::Tensor mask_arena;
  at::Tensor mask_offsets;
  at::Tensor block_tokens;
};

struct AttentionResult {
  at::Tensor out;
  at::Tensor lse;
};

AttentionResult Attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const PackedRows& rows);

// The same forward, which also yields the pooled block mass of chosen dense rows in the same pass:
//   mass_offsets [rows] int64  where the row's mass starts in `mass`; -1 = not wanted
//   -> mass [mass_size] fp32, per wanted row [heads, query_blocks, key_blocks]: the softmax mass of
//   a key block,
//      averaged over the real queries of the query block. Sums over key blocks are 1 (SparseD, Eq.
//      3).
struct AttentionMassResult {
  at::Tensor out;
  at::Tensor lse;
  at::Tensor mass;
};

AttentionMassResult AttentionWithMass(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const PackedRows& rows, const at::Tensor& mass_offsets,
                                      int64_t mass_size);

// Pooled block mass alone, for one row, at any scale and over the key blocks from first_key_block
// on (the softmax runs over those keys only): what the SparseD reference code ranks by.
//   q [tokens, heads, head_dim], k [tokens, kv_heads, head_dim]
//   -> [heads, query_blocks, key_blocks - first_key_block] fp32
at::Tensor PooledMass(const at::Tensor& q, const at::Tensor& k, int64_t block_tokens, double scale,
                      int64_t first_key_block);

}  // namespace sparsed::kernels
