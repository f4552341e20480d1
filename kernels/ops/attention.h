// SPDX-License-Identifier: Apache-2.0
// Adaptors of the operators of kernels/attention.h; see operator.h.
#pragma once

#include <tuple>

#include <ATen/core/Tensor.h>

#include "kernels/attention.h"
#include "kernels/ops/lists.h"

namespace sparsed::kernels::ops {

void CheckAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const PackedRows& rows);
void CheckMassOffsets(const PackedRows& rows, int64_t heads, const at::Tensor& mass_offsets,
                      int64_t mass_size);
void CheckPooledMass(const at::Tensor& q, const at::Tensor& k, int64_t block_tokens,
                     int64_t first_key_block);

template <auto kImplementation>
// NOLINTNEXTLINE(readability-function-size): one parameter per argument of the operator's schema
std::tuple<at::Tensor, at::Tensor> AttentionOp(const at::Tensor& q, const at::Tensor& k,
                                               const at::Tensor& v, at::IntArrayRef row_offsets,
                                               const at::Tensor& mask_arena,
                                               at::IntArrayRef mask_offsets,
                                               at::IntArrayRef block_tokens) {
  const PackedRows rows{ListAsTensor(row_offsets), mask_arena, ListAsTensor(mask_offsets),
                        ListAsTensor(block_tokens)};
  CheckAttention(q, k, v, rows);
  AttentionResult result = kImplementation(q, k, v, rows);
  return {result.out, result.lse};
}

template <auto kImplementation>
// NOLINTNEXTLINE(readability-function-size): one parameter per argument of the operator's schema
std::tuple<at::Tensor, at::Tensor, at::Tensor> AttentionWithMassOp(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::IntArrayRef row_offsets,
    const at::Tensor& mask_arena, at::IntArrayRef mask_offsets, at::IntArrayRef block_tokens,
    at::IntArrayRef mass_offsets, int64_t mass_size) {
  const PackedRows rows{ListAsTensor(row_offsets), mask_arena, ListAsTensor(mask_offsets),
                        ListAsTensor(block_tokens)};
  const at::Tensor masses = ListAsTensor(mass_offsets);
  CheckAttention(q, k, v, rows);
  CheckMassOffsets(rows, q.size(1), masses, mass_size);
  AttentionMassResult result = kImplementation(q, k, v, rows, masses, mass_size);
  return {result.out, result.lse, result.mass};
}

template <auto kImplementation>
at::Tensor PooledMassOp(const at::Tensor& q, const at::Tensor& k, int64_t block_tokens,
                        double scale, int64_t first_key_block) {
  CheckPooledMass(q, k, block_tokens, first_key_block);
  return kImplementation(q, k, block_tokens, scale, first_key_block);
}

}  // namespace sparsed::kernels::ops
