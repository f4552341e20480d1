// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <ATen/ATen.h>

#include "kernels/block_mask.h"
#include "kernels/reference/reference.h"

namespace sparsed::kernels::reference {
namespace {

at::Tensor RepeatKvHeads(const at::Tensor& x, int64_t heads) {
  return x.repeat_interleave(heads / x.size(1), 1);
}

// Token-level keep mask [heads, tokens, tokens] from the block mask.
at::Tensor ExpandMask(const at::Tensor& block_mask, int64_t block_tokens, int64_t tokens) {
  return block_mask.repeat_interleave(block_tokens, 1)
      .repeat_interleave(block_tokens, 2)
      .narrow(1, 0, tokens)
      .narrow(2, 0, tokens);
}

}  // namespace

at::Tensor PackMask(const at::Tensor& mask) {
  const int64_t words = MaskRowWords(mask.size(2));
  at::Tensor bits = at::constant_pad_nd(mask.to(at::kLong), {0, words * 32 - mask.size(2)});
  bits = bits.view({mask.size(0), mask.size(1), words, 32});
  const at::Tensor weights = at::pow(2, at::arange(32, at::kLong));
  return (bits * weights).sum(-1).to(at::kInt).flatten();  // wraps: the top bit is the sign
}

at::Tensor UnpackMask(const at::Tensor& words, int64_t heads, int64_t query_blocks,
                      int64_t key_blocks) {
  const at::Tensor grid = words.view({heads, query_blocks, MaskRowWords(key_blocks), 1});
  const at::Tensor bits = grid.bitwise_right_shift(at::arange(32, at::kInt)).bitwise_and(1);
  return bits.flatten(2).narrow(2, 0, key_blocks).to(at::kBool);
}

AttentionResult Attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const PackedRows& rows) {
  const int64_t heads = q.size(1);
  AttentionResult result{at::empty_like(q, at::MemoryFormat::Contiguous),
                         at::empty({heads, q.size(0)}, q.options())};
  const at::Tensor offsets = rows.row_offsets;
  for (int64_t row = 0; row + 1 < offsets.size(0); ++row) {
    const int64_t begin = offsets[row].item<int64_t>();
    const int64_t length = offsets[row + 1].item<int64_t>() - begin;
    const at::Tensor row_q = q.narrow(0, begin, length).transpose(0, 1);
    const at::Tensor row_k = RepeatKvHeads(k.narrow(0, begin, length), heads).transpose(0, 1);
    const at::Tensor row_v = RepeatKvHeads(v.narrow(0, begin, length), heads).transpose(0, 1);
    at::Tensor logits = at::matmul(row_q, row_k.transpose(1, 2)) / std::sqrt(double(q.size(2)));
    const int64_t mask_offset = rows.mask_offsets[row].item<int64_t>();
    if (mask_offset >= 0) {
      const int64_t block = rows.block_tokens[row].item<int64_t>();
      const int64_t blocks = BlockCount(length, block);
      const at::Tensor words =
          rows.mask_arena.narrow(0, mask_offset, MaskWords(heads, length, block));
      const at::Tensor keep = ExpandMask(UnpackMask(words, heads, blocks, blocks), block, length);
      logits = logits.masked_fill(keep.logical_not(), -INFINITY);
    }
    // A query without any key: softmax gives NaN there, the contract says zeros.
    const at::Tensor lse = at::logsumexp(logits, -1);
    const at::Tensor weights =
        at::softmax(logits, -1).masked_fill(lse.eq(-INFINITY).unsqueeze(-1), 0.0);
    result.out.narrow(0, begin, length).copy_(at::matmul(weights, row_v).transpose(0, 1));
    result.lse.narrow(1, begin, length).copy_(lse);
  }
  return result;
}

at::Tensor PooledMass(const at::Tensor& q, const at::Tensor& k, int64_t block_tokens, double scale,
                      int64_t first_key_block) {
  const int64_t tokens = q.size(0);
  const int64_t first_key = first_key_block * block_tokens;
  const at::Tensor keys =
      RepeatKvHeads(k, q.size(1)).narrow(0, first_key, tokens - first_key).transpose(0, 1);
  const at::Tensor weights =
      at::softmax(at::matmul(q.transpose(0, 1), keys.transpose(1, 2)) * scale, -1);
  std::vector<at::Tensor> query_blocks;
  for (const at::Tensor& block : weights.split(block_tokens, 1)) {
    std::vector<at::Tensor> masses;
    for (const at::Tensor& cell : block.split(block_tokens, 2)) {
      masses.push_back(cell.sum(2).mean(1));
    }
    query_blocks.push_back(at::stack(masses, -1));
  }
  return at::stack(query_blocks, 1);
}

}  // namespace sparsed::kernels::reference
