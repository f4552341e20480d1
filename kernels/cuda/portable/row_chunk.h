// SPDX-License-Identifier: Apache-2.0
// Rows on their way to the device: by value, as a kernel's parameter, a chunk at a time. Nothing is
// copied from host memory, so that a launch can be captured into a CUDA graph and never waits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/attention_call.h"

namespace sparsed::kernels::cuda {

constexpr int kRowsPerChunk = 64;  // a kernel's parameters hold 4 KiB on every architecture

struct RowChunk {
  int32_t count;                          // rows
  int64_t first_unit[kRowsPerChunk + 1];  // of each row; then their total
  AttentionRow rows[kRowsPerChunk];
};

// Chunks of the rows; a unit is what one thread block does for one head, units_of(row) > 0 of them.
template <class UnitsOf>
std::vector<RowChunk> MakeChunks(const std::vector<AttentionRow>& rows, UnitsOf units_of) {
  std::vector<RowChunk> chunks;
  for (size_t begin = 0; begin < rows.size(); begin += kRowsPerChunk) {
    RowChunk chunk{};
    chunk.count = static_cast<int32_t>(std::min<size_t>(kRowsPerChunk, rows.size() - begin));
    for (int r = 0; r < chunk.count; ++r) {
      chunk.rows[r] = rows[begin + static_cast<size_t>(r)];
      chunk.first_unit[r + 1] = chunk.first_unit[r] + units_of(chunk.rows[r]);
    }
    chunks.push_back(chunk);
  }
  return chunks;
}

}  // namespace sparsed::kernels::cuda
