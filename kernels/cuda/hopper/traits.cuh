// SPDX-License-Identifier: Apache-2.0
// Sizes of one instance of the kernel, and its shared memory.
//
// A CTA has one producer warpgroup and two consumer warpgroups of 64 queries each.
//   shared lists (dense rows, blocks of 128): both consumers work on one tile of 128 queries and
//     read the same key tiles of 128 tokens from one ring of buffers;
//   own lists (blocks of 64): each consumer has its own query block, its own list of key blocks,
//     and its own ring, filled by its own producer warp.
// Mass is made for dense rows only, so with shared lists.
#pragma once

#include <cstdint>

#include <cutlass/arch/barrier.h>

namespace sparsed::kernels::cuda::hopper {

enum class Lists { kShared, kOwn };

inline constexpr int kConsumers = 2;
inline constexpr int kQueries = 64;       // of one consumer
inline constexpr int kSlabChannels = 64;  // 128 bytes: the width of the 128-byte swizzle
inline constexpr int kSlabRowBytes = 128;
inline constexpr int kThreads = 128 * (1 + kConsumers);

template <class ElementType, int head_dim, Lists lists, int mass_block>
struct Traits {
  using Element = ElementType;
  static constexpr int kHeadDim = head_dim;
  static constexpr Lists kLists = lists;
  static constexpr int kMassBlock = mass_block;  // 0: no mass
  static_assert(mass_block == 0 || lists == Lists::kShared);

  static constexpr int kSlabs = kHeadDim / kSlabChannels;
  static constexpr int kRings = lists == Lists::kShared ? 1 : kConsumers;
  static constexpr int kConsumersPerRing = kConsumers / kRings;
  static constexpr int kQueryTile = kQueries * kConsumersPerRing;
  static constexpr int kBlock = lists == Lists::kShared ? 128 : 64;  // tokens of a list's entry
  // Two blocks of 64 make one key tile where their buffers are small enough for a deep ring.
  static constexpr int kKeyTile = lists == Lists::kShared || head_dim == 64 ? 128 : 64;
  static constexpr int kBlocksPerTile = kKeyTile / kBlock;
  static constexpr int kQueryBytes = kQueries * kHeadDim * 2;  // of one consumer
  static constexpr int kBufferBytes = kKeyTile * kHeadDim * 2;
  static constexpr int kStages = 6 * 32768 / (kBufferBytes * kRings);
  // The consumers take turns in issuing matrix products, so that one's softmax runs beside the
  // other's products. Where softmax is the larger part (head_dim 64), turns only add waiting.
  static constexpr bool kTurns = lists == Lists::kShared && (head_dim == 128 || mass_block != 0);
  static constexpr int kMassBlocksPerTile = mass_block == 0 ? 1 : kKeyTile / mass_block;
};

// What the producer says of a key tile: the real keys of its halves of 64, and whether it is the
// query tile's last.
struct KeyTile {
  int valid[2];
  bool last;
};

struct QueryTile {
  int row;  // -1: there are no more tiles
  int head;
  int query_tile;
  bool empty;  // keeps no key block: no buffers follow
};

// Both travel as one volatile word: written before and read after a barrier, and the compiler may not
// move volatile accesses across the barriers' volatile instructions.
class KeyTileWord {
 public:
  __device__ void Write(const KeyTile& tile) {
    word_ = static_cast<uint32_t>(tile.valid[0] | tile.valid[1] << 8 | tile.last << 16);
  }
  __device__ KeyTile Read() const {
    const uint32_t word = word_;
    return {{static_cast<int>(word & 0xff), static_cast<int>(word >> 8 & 0xff)}, word >> 16 != 0};
  }

 private:
  volatile uint32_t word_;
};

class QueryTileWord {
 public:
  __device__ void Write(const QueryTile& tile) {
    word_ = static_cast<uint64_t>(static_cast<uint32_t>(tile.query_tile)) << 32 |
            static_cast<uint64_t>(tile.head) << 16 | static_cast<uint64_t>(tile.empty) << 8 |
            static_cast<uint64_t>(tile.row & 0xff);
  }
  __device__ QueryTile Read() const {
    const uint64_t word = word_;
    return {static_cast<int8_t>(word & 0xff), static_cast<int>(word >> 16 & 0xffff),
            static_cast<int>(word >> 32), (word >> 8 & 1) != 0};
  }

 private:
  volatile uint64_t word_;
};

template <class T>
struct Ring {
  using Barrier = cutlass::arch::ClusterTransactionBarrier;
  using Empty = cutlass::arch::ClusterBarrier;
  Barrier full[T::kStages];
  Empty empty[T::kStages];
  Barrier query_full;
  Empty query_empty;
  QueryTileWord query_tile;
  KeyTileWord key_tile[T::kStages];
};

template <class T>
struct Storage {
  alignas(1024) uint8_t q[kConsumers][T::kQueryBytes];
  alignas(1024) uint8_t buffers[T::kRings][T::kStages][T::kBufferBytes];
  Ring<T> rings[T::kRings];
  float lse[kConsumers * kQueries];  // base 2, of the query tile whose mass is summed
};

// A place in a ring.
template <class T>
struct Cursor {
  int stage = 0;
  uint32_t phase = 0;
  __device__ void Advance() {
    if (++stage == T::kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

}  // namespace sparsed::kernels::cuda::hopper
