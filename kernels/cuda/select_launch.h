// SPDX-License-Identifier: Apache-2.0
// Launches of select.cu and mask_statistics.cu. Pointers are device pointers, tensors contiguous.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>

namespace sparsed::kernels::cuda {

enum class SelectionRule { kTopRatio, kTopRatioCompat, kTopK, kMass };

struct SelectParams {
  const float* scores;             // [rows, key_blocks]
  const float* generation_scores;  // [rows, key_blocks - first_generation], kTopRatioCompat only
  uint32_t* words;                 // [rows, ceil(key_blocks / 32)]
  int64_t rows;                    // heads * query blocks
  int key_blocks;
  int first_generation;
  SelectionRule rule;
  // How many of the best to keep: of the prompt's blocks, or of all blocks where the rule ranks
  // them together; and of the generation's.
  int count;
  int generation_count;
  double droppable;  // kMass: what is dropped sums to less
  double min_mass;   // 0 = off
};
void LaunchSelectBlocks(const SelectParams& params, cudaStream_t stream);

struct MaskStatisticsParams {
  const uint32_t* words;  // [heads, blocks, ceil(blocks / 32)]
  const float* mass;      // [heads, blocks, blocks]
  int64_t heads;
  int64_t blocks;
  int64_t tokens;
  int64_t block_tokens;
  int32_t* row_kept;  // scratch [heads * blocks]
  double* row_mass;   // scratch [heads * blocks]
  int64_t* kept;      // [heads]
  double* retained;   // [heads]
};
void LaunchMaskStatistics(const MaskStatisticsParams& params, cudaStream_t stream);

// kept [heads]: set bits of words [heads, words_per_head].
void LaunchCountKeptBlocks(const uint32_t* words, int64_t heads, int64_t words_per_head,
                           int64_t* kept, cudaStream_t stream);

}  // namespace sparsed::kernels::cuda
