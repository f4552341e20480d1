// SPDX-License-Identifier: Apache-2.0
// Which thread block does what, and which keys it visits.
#pragma once

#include <cstdint>

#include "kernels/block_mask.h"
#include "kernels/cuda/portable/row_chunk.h"

namespace sparsed::kernels::cuda {

// A thread block's share of a chunk. Heads are outermost: thread blocks that run together read the
// same keys.
struct Place {
  int32_t row;   // of the chunk
  int64_t unit;  // of the row
  int64_t head;
};

__device__ inline Place FindPlace(const RowChunk& chunk) {
  const int64_t units = chunk.first_unit[chunk.count];
  const int64_t unit = blockIdx.x % units;
  int32_t row = 0;
  while (unit >= chunk.first_unit[row + 1]) ++row;
  return {row, unit - chunk.first_unit[row], blockIdx.x / units};
}

// The keys of one query block, a tile at a time and in ascending order: those of the kept blocks, or
// of a dense row all from first_key on. A tile begins at a multiple of kTile and ends with its block
// or with the row.
template <int kTile>
class KeyWalk {
 public:
  // words: the query block's bitmap, nullptr for a dense row.
  __device__ KeyWalk(const int32_t* words, const AttentionRow& row, int64_t first_key)
      : words_(words), length_(row.length), block_tokens_(row.block_tokens) {
    if (words == nullptr) {
      next_ = first_key;
      end_ = length_;
    } else {
      word_count_ = MaskRowWords(BlockCount(length_, block_tokens_));
    }
  }

  // The first key of the next tile. False after the last one. The same for all threads.
  __device__ bool Next(int64_t* key) {
    if (next_ >= end_) {
      while (bits_ == 0) {
        if (++word_ >= word_count_) return false;
        bits_ = static_cast<uint32_t>(words_[word_]);
      }
      const int64_t block = word_ * 32 + __ffs(static_cast<int>(bits_)) - 1;
      bits_ &= bits_ - 1;
      next_ = block * block_tokens_;
      const int64_t block_end = next_ + block_tokens_;
      end_ = block_end < length_ ? block_end : length_;
    }
    *key = next_;
    next_ += kTile;
    return true;
  }

 private:
  const int32_t* words_;
  int64_t length_;
  int64_t block_tokens_;
  int64_t word_count_ = 0;
  int64_t word_ = -1;
  uint32_t bits_ = 0;  // of the current word, not visited yet
  int64_t next_ = 0;   // of the current run of keys
  int64_t end_ = 0;
};

// The bitmap of a query block.
__device__ inline const int32_t* MaskWordsOf(const AttentionCall& call, const AttentionRow& row,
                                             int64_t head, int64_t query) {
  if (row.mask_offset < 0) return nullptr;
  const int64_t blocks = BlockCount(row.length, row.block_tokens);
  return call.mask_arena + row.mask_offset +
         (head * blocks + query / row.block_tokens) * MaskRowWords(blocks);
}

}  // namespace sparsed::kernels::cuda
