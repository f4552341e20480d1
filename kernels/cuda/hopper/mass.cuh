// SPDX-License-Identifier: Apache-2.0
// Pooled block mass in the same pass as the dense forward (SparseD, Eq. 3). Of every key block and
// query row the kernel notes the base-2 logarithm of the block's summed weights; once the row's
// log-sum-exp is known, mass is the mean of 2^(note - lse) over the query block's rows. Notes of a
// CTA: [mass block][128 rows], 512 bytes a block, in the L2 cache up to about 64k tokens.
#pragma once

#include <cstdint>

#include "kernels/cuda/hopper/params.h"
#include "kernels/cuda/hopper/softmax.cuh"
#include "kernels/cuda/hopper/traits.cuh"

namespace sparsed::kernels::cuda::hopper {

inline constexpr int kNoteRows = kConsumers * kQueries;

template <class T>
class MassNotes {
 public:
  __device__ MassNotes(const Params& params, Storage<T>& storage, int consumer)
      : params_(params),
        storage_(storage),
        consumer_(consumer),
        notes_(params.notes + static_cast<int64_t>(blockIdx.x) * params.note_slots * kNoteRows) {}

  // After each key tile's Softmax::Update. Among the quad's lanes, each of which has a share of two
  // rows' sums, bit 0 picks the row and bit 1 the mass block that a lane ends up with.
  __device__ void Note(const Softmax<T>& softmax, int key_tile) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const bool second_row = lane & 1;
    const bool second_part = lane & 2;
    float sums[T::kMassBlocksPerTile];
#pragma unroll
    for (int part = 0; part < T::kMassBlocksPerTile; ++part) {
      sums[part] = Fold(softmax.part_sum[0][part], softmax.part_sum[1][part], second_row, 1);
    }
    float sum;
    if constexpr (T::kMassBlocksPerTile == 2) {
      sum = Fold(sums[0], sums[1], second_part, 2);
    } else {
      sum = Fold(sums[0], sums[0], second_part, 2);
    }
    const float reference = second_row ? softmax.reference(1) : softmax.reference(0);
    const int slot = key_tile * T::kMassBlocksPerTile + (T::kMassBlocksPerTile == 2 && second_part);
    if (T::kMassBlocksPerTile == 2 || !second_part) {
      notes_[static_cast<int64_t>(slot) * kNoteRows + NoteRow(lane, second_row)] =
          reference + __log2f(sum);
    }
  }

  // lse: base 2, of this thread's two rows; +inf where the row has no query.
  __device__ void Finish(const Row& row, const QueryTile& at, const float (&lse)[2]) {
    const int thread = static_cast<int>(threadIdx.x % 128);
    const int lane = thread % 32;
    if (lane % 4 == 0) {
      float* to = storage_.lse + consumer_ * kQueries + thread / 32 * 16 + lane / 4;
      to[0] = lse[0];
      to[8] = lse[1];
    }
    Sync();
    const int blocks = (row.length + T::kMassBlock - 1) / T::kMassBlock;
    const int query_block = at.query_tile * (128 / T::kMassBlock) + (kWide ? 0 : consumer_);
    if (query_block < blocks) {
      const int64_t line = static_cast<int64_t>(at.head) * blocks + query_block;
      float* mass = params_.mass + row.mass_offset + line * blocks;
      const int queries = min(T::kMassBlock, row.length - query_block * T::kMassBlock);
      const int warp = kWide ? consumer_ * 4 + thread / 32 : thread / 32;
      for (int block = warp; block < blocks; block += kWide ? 8 : 4) {
        const float sum = SumOfBlock(block);
        if (lane == 0) mass[block] = sum / static_cast<float>(queries);
      }
    }
    Sync();
  }

 private:
  // This lane keeps `second` or `first` and adds what the lane across `bit` has of it.
  __device__ static float Fold(float first, float second, bool keeps_second, int bit) {
    const float kept = keeps_second ? second : first;
    return kept + __shfl_xor_sync(kWholeWarp, keeps_second ? first : second, bit);
  }

  __device__ int NoteRow(int lane, bool second_row) const {
    const int warp = static_cast<int>(threadIdx.x / 32 % 4);
    return consumer_ * kQueries + warp * 16 + lane / 4 + (second_row ? 8 : 0);
  }

  static constexpr bool kWide = T::kMassBlock == 128;  // a query block spans both consumers

  __device__ float SumOfBlock(int block) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int begin = kWide ? 0 : consumer_ * kQueries;
    const float* notes = notes_ + static_cast<int64_t>(block) * kNoteRows + begin;
    const float* lse = storage_.lse + begin;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < T::kMassBlock / 32; ++i) {
      const int at = i * 32 + lane;
      sum += exp2f(__ldcg(notes + at) - lse[at]);
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(kWholeWarp, sum, step);
    return sum;
  }

  // Those who share a query block: both consumers, or one.
  __device__ void Sync() const {
    if (kWide) {
      cutlass::arch::NamedBarrier::sync(kConsumers * 128, 2u);
    } else {
      cutlass::arch::NamedBarrier::sync(128, 2u + static_cast<uint32_t>(consumer_));
    }
  }

  const Params& params_;
  Storage<T>& storage_;
  int consumer_;
  float* notes_;
};

}  // namespace sparsed::kernels::cuda::hopper
