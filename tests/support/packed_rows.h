// SPDX-License-Identifier: Apache-2.0
// Builders of packed batches for operator tests.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

#include "kernels/attention.h"
#include "kernels/block_mask.h"
#include "kernels/reference/reference.h"

namespace sparsed::testing {

inline at::Tensor Longs(const std::vector<int64_t>& values) {
  return at::tensor(values, at::TensorOptions().dtype(at::kLong));
}

// Rows of the given lengths without any mask.
inline kernels::PackedRows DenseRows(const std::vector<int64_t>& lengths, int64_t block_tokens) {
  std::vector<int64_t> offsets = {0};
  for (const int64_t length : lengths) offsets.push_back(offsets.back() + length);
  const auto rows = static_cast<int64_t>(lengths.size());
  return {Longs(offsets), at::empty({0}, at::kInt),
          at::full({rows}, -1, at::TensorOptions().dtype(at::kLong)),
          at::full({rows}, block_tokens, at::TensorOptions().dtype(at::kLong))};
}

// Gives row `row` the block mask `mask` [heads, query_blocks, key_blocks], appended to the arena.
inline void SetMask(int64_t row, const at::Tensor& mask, int64_t block_tokens,
                    kernels::PackedRows* rows) {
  rows->mask_offsets[row] = rows->mask_arena.size(0);
  rows->block_tokens[row] = block_tokens;
  rows->mask_arena = at::cat({rows->mask_arena, kernels::reference::PackMask(mask)});
}

// A random mask of about the given density in which every query block keeps at least one key block.
inline at::Tensor RandomMask(int64_t heads, int64_t tokens, int64_t block_tokens, double density) {
  const int64_t blocks = kernels::BlockCount(tokens, block_tokens);
  at::Tensor mask = at::rand({heads, blocks, blocks}).lt(density);
  const at::Tensor first = at::randint(blocks, {heads, blocks, 1}, at::kLong);
  return mask.scatter_(2, first, true);
}

}  // namespace sparsed::testing
