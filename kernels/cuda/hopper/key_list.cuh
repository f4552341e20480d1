// SPDX-License-Identifier: Apache-2.0
// The kept key blocks of one (head, query block), ascending, read off the bitmap by a whole warp.
#pragma once

#include <cstdint>

namespace sparsed::kernels::cuda::hopper {

inline constexpr uint32_t kWholeWarp = 0xffffffffu;

class KeyList {
 public:
  // words: the bitmap's row, nullptr = all blocks are kept.
  __device__ KeyList(const int32_t* words, int blocks) : words_(words), blocks_(blocks) {
    if (words_ != nullptr) LoadChunk();
  }

  // The next kept block, -1 after the last one; the same in all lanes.
  __device__ int Next() {
    if (words_ == nullptr) return next_ < blocks_ ? next_++ : -1;
    while (bits_ == 0) {
      if (pending_ == 0) {
        chunk_begin_ += 32;
        if (chunk_begin_ * 32 >= blocks_) return -1;
        LoadChunk();
        continue;
      }
      word_ = __ffs(pending_) - 1;
      pending_ &= pending_ - 1;
      bits_ = __shfl_sync(kWholeWarp, chunk_, word_);
    }
    const int bit = __ffs(bits_) - 1;
    bits_ &= bits_ - 1;
    return (chunk_begin_ + word_) * 32 + bit;
  }

 private:
  // 32 words, one a lane. Bits beyond the row's blocks are dropped: they would be read out of bounds.
  __device__ void LoadChunk() {
    const int word = chunk_begin_ + static_cast<int>(threadIdx.x % 32);
    const int left = blocks_ - word * 32;
    chunk_ = left > 0 ? static_cast<uint32_t>(__ldg(words_ + word)) : 0;
    if (left > 0 && left < 32) chunk_ &= (1u << left) - 1;
    pending_ = __ballot_sync(kWholeWarp, chunk_ != 0);
  }

  const int32_t* words_;
  int blocks_;
  int next_ = 0;          // dense
  int chunk_begin_ = 0;   // first word of the chunk
  uint32_t chunk_ = 0;    // this lane's word
  uint32_t pending_ = 0;  // words of the chunk with kept blocks that were not begun
  int word_ = 0;
  uint32_t bits_ = 0;  // what is left of the word in work
};

}  // namespace sparsed::kernels::cuda::hopper
