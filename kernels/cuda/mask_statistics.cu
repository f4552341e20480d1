// SPDX-License-Identifier: Apache-2.0
// What masks keep. Sums are fp64 and in one fixed order: per query block over a warp's lanes, then
// per head over the threads of one block.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/select_launch.h"

namespace sparsed::kernels::cuda {
namespace {

constexpr int kRowsPerBlock = 8;  // a warp each
constexpr int kHeadThreads = 256;
constexpr int kCountThreads = 1024;

__global__ void __launch_bounds__(kRowsPerBlock * 32)
    KeptPerRow(const __grid_constant__ MaskStatisticsParams params) {
  const int64_t row = int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / 32;
  if (row >= params.heads * params.blocks) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t row_words = (params.blocks + 31) / 32;
  const uint32_t* words = params.words + row * row_words;
  const float* mass = params.mass + row * params.blocks;
  int kept = 0;
  double sum = 0;
  for (int64_t word = 0; word < row_words; ++word) {
    const int64_t block = word * 32 + lane;  // bits beyond the last block are not followed
    if (block < params.blocks && ((words[word] >> lane) & 1u) != 0) {
      ++kept;
      sum += static_cast<double>(mass[block]);
    }
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    kept += __shfl_xor_sync(kFullWarp, kept, offset);
    sum += __shfl_xor_sync(kFullWarp, sum, offset);
  }
  if (lane == 0) {
    params.row_kept[row] = kept;
    params.row_mass[row] = sum;
  }
}

__global__ void __launch_bounds__(kHeadThreads)
    KeptPerHead(const __grid_constant__ MaskStatisticsParams params) {
  __shared__ BlockFold<int64_t, kHeadThreads>::Storage kept_storage;
  __shared__ BlockFold<double, kHeadThreads>::Storage sum_storage;
  const int64_t first = int64_t{blockIdx.x} * params.blocks;
  const auto tokens = static_cast<double>(params.tokens);
  int64_t kept = 0;
  double sum = 0;
  for (int64_t i = threadIdx.x; i < params.blocks; i += kHeadThreads) {
    const int64_t left = params.tokens - i * params.block_tokens;
    const int64_t queries = left < params.block_tokens ? left : params.block_tokens;
    kept += params.row_kept[first + i];
    sum += params.row_mass[first + i] * static_cast<double>(queries) / tokens;
  }
  kept = BlockFold<int64_t, kHeadThreads>(&kept_storage).Sum(kept);
  sum = BlockFold<double, kHeadThreads>(&sum_storage).Sum(sum);
  if (threadIdx.x == 0) {
    params.kept[blockIdx.x] = kept;
    params.retained[blockIdx.x] = sum;
  }
}

__global__ void __launch_bounds__(kCountThreads)
    CountKernel(const uint32_t* words, int64_t words_per_head, int64_t* kept) {
  __shared__ BlockFold<int64_t, kCountThreads>::Storage storage;
  const uint32_t* head_words = words + int64_t{blockIdx.x} * words_per_head;
  int64_t count = 0;
  for (int64_t i = threadIdx.x; i < words_per_head; i += kCountThreads) {
    count += __popc(head_words[i]);
  }
  count = BlockFold<int64_t, kCountThreads>(&storage).Sum(count);
  if (threadIdx.x == 0) kept[blockIdx.x] = count;
}

}  // namespace

void LaunchMaskStatistics(const MaskStatisticsParams& params, cudaStream_t stream) {
  const int64_t rows = params.heads * params.blocks;
  const auto grid = static_cast<unsigned>((rows + kRowsPerBlock - 1) / kRowsPerBlock);
  KeptPerRow<<<grid, kRowsPerBlock * 32, 0, stream>>>(params);
  KeptPerHead<<<static_cast<unsigned>(params.heads), kHeadThreads, 0, stream>>>(params);
}

void LaunchCountKeptBlocks(const uint32_t* words, int64_t heads, int64_t words_per_head,
                           int64_t* kept, cudaStream_t stream) {
  CountKernel<<<static_cast<unsigned>(heads), kCountThreads, 0, stream>>>(words, words_per_head,
                                                                          kept);
}

}  // namespace sparsed::kernels::cuda
