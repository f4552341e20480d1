// SPDX-License-Identifier: Apache-2.0
// One row and head at a time: its weights [tokens, tokens] are the largest tensor.
#include <cmath>

#include <ATen/ATen.h>

#include "kernels/block_mask.h"
#include "kernels/reference/reference.h"

namespace sparsed::kernels::reference {
namespace {

// Token-level keep mask [tokens, tokens] from a head's block mask.
at::Tensor ExpandMask(const at::Tensor& block_mask, int64_t block_tokens, int64_t tokens) {
  return block_mask.repeat_interleave(block_tokens, 0)
      .repeat_interleave(block_tokens, 1)
      .narrow(0, 0, tokens)
      .narrow(1, 0, tokens);
}

// [heads, query_blocks, key_blocks] of a row, undefined if it is dense.
at::Tensor RowMask(const PackedRows& rows, int64_t row, int64_t heads, int64_t length) {
  const int64_t offset = rows.mask_offsets[row].item<int64_t>();
  if (offset < 0) return {};
  const int64_t block_tokens = rows.block_tokens[row].item<int64_t>();
  const int64_t blocks = BlockCount(length, block_tokens);
  return UnpackMask(rows.mask_arena.narrow(0, offset, MaskWords(heads, length, block_tokens)),
                    heads, blocks, blocks);
}

struct HeadResult {
  at::Tensor out;  // [tokens, head_dim]
  at::Tensor lse;  // [tokens]
};

// q, k, v [tokens, head_dim]; keep [tokens, tokens] or undefined.
HeadResult AttendHead(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const at::Tensor& keep) {
  at::Tensor logits = at::matmul(q, k.t()) / std::sqrt(double(q.size(1)));
  if (keep.defined()) logits = logits.masked_fill(keep.logical_not(), -INFINITY);
  // A query without any key: softmax gives NaN there, the contract says zeros.
  const at::Tensor lse = at::logsumexp(logits, -1);
  const at::Tensor weights =
      at::softmax(logits, -1).masked_fill(lse.eq(-INFINITY).unsqueeze(-1), 0.0);
  return {at::matmul(weights, v), lse};
}

}  // namespace

AttentionResult Attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const PackedRows& rows) {
  const int64_t heads = q.size(1);
  AttentionResult result{at::empty_like(q, at::MemoryFormat::Contiguous),
                         at::empty({heads, q.size(0)}, Wide(q).options())};
  for (int64_t row = 0; row + 1 < rows.row_offsets.size(0); ++row) {
    const int64_t begin = rows.row_offsets[row].item<int64_t>();
    const int64_t length = rows.row_offsets[row + 1].item<int64_t>() - begin;
    const at::Tensor mask = RowMask(rows, row, heads, length);
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t kv_head = head * k.size(1) / heads;
      const auto tokens_of = [&](const at::Tensor& x, int64_t h) {
        return Wide(x.narrow(0, begin, length).select(1, h));
      };
      const at::Tensor keep =
          mask.defined() ? ExpandMask(mask[head], rows.block_tokens[row].item<int64_t>(), length)
                         : at::Tensor();
      const HeadResult done =
          AttendHead(tokens_of(q, head), tokens_of(k, kv_head), tokens_of(v, kv_head), keep);
      result.out.narrow(0, begin, length).select(1, head).copy_(done.out);
      result.lse.narrow(1, begin, length).select(0, head).copy_(done.lse);
    }
  }
  return result;
}

AttentionMassResult AttentionWithMass(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const PackedRows& rows, const at::Tensor& mass_offsets,
                                      int64_t mass_size) {
  const AttentionResult attention = reference::Attention(q, k, v, rows);
  at::Tensor mass = at::zeros({mass_size}, Wide(q).options());
  for (int64_t row = 0; row + 1 < rows.row_offsets.size(0); ++row) {
    const int64_t offset = mass_offsets[row].item<int64_t>();
    if (offset < 0) continue;
    const int64_t begin = rows.row_offsets[row].item<int64_t>();
    const int64_t length = rows.row_offsets[row + 1].item<int64_t>() - begin;
    const at::Tensor row_mass =
        PooledMass(q.narrow(0, begin, length), k.narrow(0, begin, length),
                   rows.block_tokens[row].item<int64_t>(), 1 / std::sqrt(double(q.size(2))), 0);
    mass.narrow(0, offset, row_mass.numel()).copy_(row_mass.flatten());
  }
  return {attention.out, attention.lse, mass};
}

at::Tensor PooledMass(const at::Tensor& q, const at::Tensor& k, int64_t block_tokens, double scale,
                      int64_t first_key_block) {
  const int64_t tokens = q.size(0);
  const int64_t first_key = first_key_block * block_tokens;
  const at::Tensor keys = k.narrow(0, first_key, tokens - first_key);
  std::vector<at::Tensor> heads;
  for (int64_t head = 0; head < q.size(1); ++head) {
    const at::Tensor head_keys = Wide(keys.select(1, head * k.size(1) / q.size(1)));
    const at::Tensor weights =
        at::softmax(at::matmul(Wide(q.select(1, head)), head_keys.t()) * scale, -1);
    const at::Tensor sums = SumBlocks(SumBlocks(weights, block_tokens, 1), block_tokens, 0);
    heads.push_back(sums / TokensPerBlock(sums, tokens, block_tokens).unsqueeze(1));
  }
  return at::stack(heads);
}

}  // namespace sparsed::kernels::reference
