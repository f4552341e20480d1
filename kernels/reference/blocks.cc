// SPDX-License-Identifier: Apache-2.0
// What the other references share: wide types, repeated heads, sums over blocks, masks.
#include <ATen/ATen.h>

#include "kernels/block_mask.h"
#include "kernels/reference/reference.h"

namespace sparsed::kernels::reference {

at::Tensor Wide(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
}

at::Tensor RepeatKvHeads(const at::Tensor& x, int64_t heads, int64_t dim) {
  return heads == x.size(dim) ? x : x.repeat_interleave(heads / x.size(dim), dim);
}

at::Tensor SumBlocks(const at::Tensor& x, int64_t block_tokens, int64_t dim) {
  const at::Tensor last = x.movedim(dim, -1);
  const int64_t blocks = BlockCount(x.size(dim), block_tokens);
  const at::Tensor padded =
      at::constant_pad_nd(last, {0, blocks * block_tokens - x.size(dim)}).contiguous();
  std::vector<int64_t> shape = padded.sizes().vec();
  shape.back() = blocks;
  shape.push_back(block_tokens);
  return padded.view(shape).sum(-1).movedim(-1, dim);
}

at::Tensor TokensPerBlock(const at::Tensor& x, int64_t tokens, int64_t block_tokens) {
  const int64_t blocks = BlockCount(tokens, block_tokens);
  const at::Tensor starts = at::arange(blocks, x.options()) * double(block_tokens);
  return (double(tokens) - starts).clamp_max(double(block_tokens));
}

at::Tensor PackMask(const at::Tensor& mask) {
  const int64_t words = MaskRowWords(mask.size(2));
  at::Tensor bits = at::constant_pad_nd(mask.to(at::kLong), {0, words * 32 - mask.size(2)});
  bits = bits.view({mask.size(0), mask.size(1), words, 32});
  const at::Tensor weights = at::pow(2, at::arange(32, bits.options()));
  return (bits * weights).sum(-1).to(at::kInt).flatten();  // wraps: the top bit is the sign
}

at::Tensor UnpackMask(const at::Tensor& words, int64_t heads, int64_t query_blocks,
                      int64_t key_blocks) {
  const at::Tensor grid = words.view({heads, query_blocks, MaskRowWords(key_blocks), 1});
  const at::Tensor bits = grid.bitwise_right_shift(at::arange(32, words.options())).bitwise_and(1);
  return bits.flatten(2).narrow(2, 0, key_blocks).to(at::kBool);
}

}  // namespace sparsed::kernels::reference
