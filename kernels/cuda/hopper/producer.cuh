// SPDX-License-Identifier: Apache-2.0
// One warp that fills one ring: takes query tiles, walks their lists of key blocks and loads
//   Q, K0, K1, V0, K2, V1, ... , K(n-1), V(n-2), V(n-1)
// in the order in which the consumers read. It runs ahead into the next query tile.
#pragma once

#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "kernels/cuda/hopper/key_list.cuh"
#include "kernels/cuda/hopper/params.h"
#include "kernels/cuda/hopper/traits.cuh"

namespace sparsed::kernels::cuda::hopper {

template <class T>
class Producer {
 public:
  __device__ Producer(const Params& params, Storage<T>& storage, int ring)
      : params_(params),
        storage_(storage),
        ring_(storage.rings[ring]),
        ring_index_(ring),
        leader_(threadIdx.x % 32 == 0) {}

  __device__ void Run() {
    const int workers = static_cast<int>(gridDim.x) * T::kRings;
    int tile = static_cast<int>(blockIdx.x) * T::kRings + ring_index_;
    while (tile < params_.tile_count) {
      // Asked for now, needed after this tile: the answer takes as long as a load.
      int taken = leader_ ? atomicAdd(params_.next_tile, 1) : 0;
      Load(tile);
      tile = workers + __shfl_sync(kWholeWarp, taken, 0);
    }
    ring_.query_empty.wait(query_phase_ ^ 1);
    if (leader_) {
      ring_.query_tile.Write({-1, 0, 0, true});
      ring_.query_full.arrive();
    }
  }

 private:
  struct Blocks {  // of one key tile; -1 = none
    int block[T::kBlocksPerTile];
  };

  __device__ void Load(int tile) {
    const QueryTile at = Locate(tile);
    const Row& row = params_.rows[at.row];
    const int blocks = (row.length + T::kBlock - 1) / T::kBlock;
    KeyList list(MaskOf(row, at, blocks), blocks);
    Blocks next = Take(list);
    const bool empty = next.block[0] < 0;
    LoadQueries(row, {at.row, at.head, at.query_tile, empty});
    const int kv_head = at.head / params_.heads_per_kv;
    Blocks previous = next;
    for (bool first = true; next.block[0] >= 0; first = false) {
      const Blocks current = next;
      next = Take(list);
      LoadKeys(row, kv_head, current, next.block[0] < 0);
      if (!first) LoadBuffer(row, row.v, kv_head, previous);
      previous = current;
    }
    if (!empty) LoadBuffer(row, row.v, kv_head, previous);
  }

  __device__ QueryTile Locate(int tile) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    static_assert(kRowsPerLaunch <= 32);
    const bool begun = lane < params_.row_count && params_.rows[lane].first_tile <= tile;
    const int row = __popc(__ballot_sync(kWholeWarp, begun)) - 1;
    const int within = tile - params_.rows[row].first_tile;
    const int query_tiles = params_.rows[row].query_tiles;
    return {row, within / query_tiles, within % query_tiles, false};
  }

  __device__ const int32_t* MaskOf(const Row& row, const QueryTile& at, int blocks) const {
    if (row.mask_offset < 0) return nullptr;
    const int64_t index = static_cast<int64_t>(at.head) * blocks + at.query_tile;
    return params_.masks + row.mask_offset + index * ((blocks + 31) / 32);
  }

  __device__ static Blocks Take(KeyList& list) {
    Blocks taken;
    for (int& block : taken.block) block = list.Next();
    return taken;
  }

  __device__ void LoadQueries(const Row& row, const QueryTile& at) {
    ring_.query_empty.wait(query_phase_ ^ 1);
    query_phase_ ^= 1;
    if (!leader_) return;
    ring_.query_tile.Write(at);
    if (at.empty) {
      ring_.query_full.arrive();
      return;
    }
    ring_.query_full.arrive_and_expect_tx(T::kQueryBytes * T::kConsumersPerRing);
    for (int i = 0; i < T::kConsumersPerRing; ++i) {
      uint8_t* q = storage_.q[ring_index_ + i];
      for (int slab = 0; slab < T::kSlabs; ++slab) {
        Copy(row.q, ring_.query_full, q + slab * kQueries * kSlabRowBytes, slab, at.head,
             at.query_tile * T::kQueryTile + i * kQueries, cute::TMA::CacheHintSm90::EVICT_FIRST);
      }
    }
  }

  __device__ void LoadKeys(const Row& row, int kv_head, const Blocks& blocks, bool last) {
    ring_.empty[cursor_.stage].wait(cursor_.phase ^ 1);
    if (leader_) {
      KeyTile tile;
      for (int half = 0; half < 2; ++half) {
        tile.valid[half] = min(max(row.length - TokenOf(row, blocks, half), 0), 64);
      }
      tile.last = last;
      ring_.key_tile[cursor_.stage].Write(tile);
    }
    LoadBuffer(row, row.k, kv_head, blocks);
  }

  // First token of a half of 64 of a key tile. A half that there is not lies behind the row: zeros.
  __device__ static int TokenOf(const Row& row, const Blocks& blocks, int half) {
    if (T::kBlock == 128) return blocks.block[0] * 128 + half * 64;
    if (half >= T::kBlocksPerTile || blocks.block[half % T::kBlocksPerTile] < 0) return row.length;
    return blocks.block[half % T::kBlocksPerTile] * 64;
  }

  __device__ void LoadBuffer(const Row& row, const CUtensorMap& map, int kv_head,
                             const Blocks& blocks) {
    ring_.empty[cursor_.stage].wait(cursor_.phase ^ 1);
    if (leader_) {
      auto& full = ring_.full[cursor_.stage];
      full.arrive_and_expect_tx(T::kBufferBytes);
      uint8_t* buffer = storage_.buffers[ring_index_][cursor_.stage];
      for (int slab = 0; slab < T::kSlabs; ++slab) {
        for (int i = 0; i < T::kBlocksPerTile; ++i) {
          Copy(map, full, buffer + (slab * T::kKeyTile + i * T::kBlock) * kSlabRowBytes, slab,
               kv_head, TokenOf(row, blocks, i), cute::TMA::CacheHintSm90::EVICT_LAST);
        }
      }
    }
    cursor_.Advance();
  }

  __device__ static void Copy(const CUtensorMap& map,
                              cutlass::arch::ClusterTransactionBarrier& full, uint8_t* to, int slab,
                              int head, int token, cute::TMA::CacheHintSm90 hint) {
    cute::SM90_TMA_LOAD_3D::copy(&map, reinterpret_cast<uint64_t*>(&full),
                                 static_cast<uint64_t>(hint), to, slab * kSlabChannels, head,
                                 token);
  }

  const Params& params_;
  Storage<T>& storage_;
  Ring<T>& ring_;
  int ring_index_;
  bool leader_;
  Cursor<T> cursor_;
  uint32_t query_phase_ = 0;
};

}  // namespace sparsed::kernels::cuda::hopper
