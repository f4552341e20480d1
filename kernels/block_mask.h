// SPDX-License-Identifier: Apache-2.0
// BlockMask layout: which key blocks each query block keeps, one bit per pair.
//   [heads, query_blocks, ceil(key_blocks / 32)] uint32, held in an int32 tensor (Torch has no
//   uint32 kernels)
// Bit j % 32 of word j / 32 is key block j. Query and key blocks both have block_tokens tokens, the
// last one ends at the row's length. Unused bits of the last word are zero. One such mask per row
// and layer.
#pragma once

#include <cstdint>

namespace sparsed::kernels {

constexpr int64_t BlockCount(int64_t tokens, int64_t block_tokens) {
  return (tokens + block_tokens - 1) / block_tokens;
}

// Words of one (head, query block).
constexpr int64_t MaskRowWords(int64_t key_blocks) { return (key_blocks + 31) / 32; }

// Words of one layer's mask for a row of `tokens` tokens.
constexpr int64_t MaskWords(int64_t heads, int64_t tokens, int64_t block_tokens) {
  const int64_t blocks = BlockCount(tokens, block_tokens);
  return heads * blocks * MaskRowWords(blocks);
}

constexpr bool MaskBit(const int32_t* row_words, int64_t key_block) {
  return (static_cast<uint32_t>(row_words[key_block / 32]) >> (key_block % 32)) & 1u;
}

inline void SetMaskBit(int32_t* row_words, int64_t key_block) {
  row_words[key_block / 32] = static_cast<int32_t>(
      static_cast<uint32_t>(row_words[key_block / 32]) | 1u << (key_block % 32));
}

}  // namespace sparsed::kernels
