// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/attention.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "kernels/block_mask.h"
#include "kernels/cpu/cpu.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/operator.h"

namespace sparsed::kernels {

using at::Tensor;

namespace ops {
namespace {

constexpr int64_t kMaxHeadDim = 256;

void CheckQueriesKeys(const Tensor& q, const Tensor& k) {
  RequireActivations(q, 3, "q");
  RequireActivations(k, 3, "k");
  RequireMatchingKeys(q, k);
  RequireRange(q.size(2), 1, kMaxHeadDim, "head_dim");
}

void CheckMasks(const PackedRows& rows, int64_t heads) {
  const Tensor& arena = rows.mask_arena;
  Require(arena.dim() == 1 && arena.scalar_type() == at::kInt && arena.is_contiguous(),
          "mask_arena", "must be a contiguous one-dimensional int32 tensor");
  const auto offsets = rows.row_offsets.accessor<int64_t, 1>();
  const auto masks = rows.mask_offsets.accessor<int64_t, 1>();
  const auto blocks = rows.block_tokens.accessor<int64_t, 1>();
  for (int64_t r = 0; r < masks.size(0); ++r) {
    RequireBlockTokens(blocks[r]);
    if (masks[r] < 0) continue;
    const int64_t words = MaskWords(heads, offsets[r + 1] - offsets[r], blocks[r]);
    TORCH_CHECK_VALUE(masks[r] <= arena.size(0) - words, "sparsed: mask_offsets of row ", r, " is ",
                      masks[r], ": its mask of ", words, " words ends beyond the arena's ",
                      arena.size(0));
  }
}

}  // namespace

void CheckAttention(const Tensor& q, const Tensor& k, const Tensor& v, const PackedRows& rows) {
  CheckQueriesKeys(q, k);
  RequireActivations(v, 3, "v");
  Require(v.scalar_type() == q.scalar_type(), "v", "must have q's dtype");
  Require(v.sizes() == k.sizes(), "v", "must have k's shape");
  RequireSameDevice(q, v, "v");
  RequireSameDevice(q, rows.mask_arena, "mask_arena");
  RequireRowOffsets(rows.row_offsets, q.size(0));
  const int64_t count = rows.row_offsets.size(0) - 1;
  RequireCount(rows.mask_offsets, count, "mask_offsets");
  RequireCount(rows.block_tokens, count, "block_tokens");
  CheckMasks(rows, q.size(1));
}

void CheckMassOffsets(const PackedRows& rows, int64_t heads, const Tensor& mass_offsets,
                      int64_t mass_size) {
  RequireCount(mass_offsets, rows.mask_offsets.size(0), "mass_offsets");
  const auto offsets = rows.row_offsets.accessor<int64_t, 1>();
  const auto masks = rows.mask_offsets.accessor<int64_t, 1>();
  const auto block_tokens = rows.block_tokens.accessor<int64_t, 1>();
  const auto masses = mass_offsets.accessor<int64_t, 1>();
  for (int64_t r = 0; r < masses.size(0); ++r) {
    if (masses[r] < 0) continue;
    Require(masks[r] < 0, "mass_offsets", "may only name dense rows");
    const int64_t blocks = BlockCount(offsets[r + 1] - offsets[r], block_tokens[r]);
    Require(masses[r] <= mass_size - heads * blocks * blocks, "mass_offsets",
            "must leave room for the row's mass within mass_size");
  }
}

void CheckPooledMass(const Tensor& q, const Tensor& k, int64_t block_tokens,
                     int64_t first_key_block) {
  CheckQueriesKeys(q, k);
  RequireBlockTokens(block_tokens);
  RequireRange(first_key_block, 0, BlockCount(q.size(0), block_tokens) - 1, "first_key_block");
}

TORCH_LIBRARY_FRAGMENT(sparsed, m) {
  m.def(
      "attention(Tensor q, Tensor k, Tensor v, SymInt[] row_offsets, Tensor mask_arena, "
      "SymInt[] mask_offsets, int[] block_tokens) -> (Tensor out, Tensor lse)");
  m.def(
      "attention_with_mass(Tensor q, Tensor k, Tensor v, SymInt[] row_offsets, Tensor mask_arena, "
      "SymInt[] mask_offsets, int[] block_tokens, SymInt[] mass_offsets, SymInt mass_size) "
      "-> (Tensor out, Tensor lse, Tensor mass)");
  m.def(
      "pooled_mass(Tensor q, Tensor k, int block_tokens, float scale, SymInt first_key_block) -> "
      "Tensor");
}

}  // namespace ops

AttentionResult Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                          const PackedRows& rows) {
  static const auto op =
      ops::FindOperator<decltype(ops::AttentionOp<cpu::Attention>)>("sparsed::attention");
  auto [out, lse] = op.call(q, k, v, ops::TensorAsList(rows.row_offsets, "row_offsets"),
                            rows.mask_arena, ops::TensorAsList(rows.mask_offsets, "mask_offsets"),
                            ops::TensorAsList(rows.block_tokens, "block_tokens"));
  return {out, lse};
}

AttentionMassResult AttentionWithMass(const Tensor& q, const Tensor& k, const Tensor& v,
                                      const PackedRows& rows, const Tensor& mass_offsets,
                                      int64_t mass_size) {
  static const auto op =
      ops::FindOperator<decltype(ops::AttentionWithMassOp<cpu::AttentionWithMass>)>(
          "sparsed::attention_with_mass");
  auto [out, lse, mass] =
      op.call(q, k, v, ops::TensorAsList(rows.row_offsets, "row_offsets"), rows.mask_arena,
              ops::TensorAsList(rows.mask_offsets, "mask_offsets"),
              ops::TensorAsList(rows.block_tokens, "block_tokens"),
              ops::TensorAsList(mass_offsets, "mass_offsets"), mass_size);
  return {out, lse, mass};
}

Tensor PooledMass(const Tensor& q, const Tensor& k, int64_t block_tokens, double scale,
                  int64_t first_key_block) {
  static const auto op =
      ops::FindOperator<decltype(ops::PooledMassOp<cpu::PooledMass>)>("sparsed::pooled_mass");
  return op.call(q, k, block_tokens, scale, first_key_block);
}

}  // namespace sparsed::kernels
