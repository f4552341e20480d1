// SPDX-License-Identifier: Apache-2.0
// One consumer warpgroup: 64 queries against the key tiles of their list. The scores of tile n and
// the values of tile n - 1 are multiplied in one go, and softmax of tile n runs beside the latter
// (Shah et al. 2024).
#pragma once

#include "kernels/cuda/hopper/mass.cuh"
#include "kernels/cuda/hopper/params.h"
#include "kernels/cuda/hopper/softmax.cuh"
#include "kernels/cuda/hopper/traits.cuh"
#include "kernels/cuda/hopper/wgmma.cuh"

namespace sparsed::kernels::cuda::hopper {

template <class T>
class Consumer {
 public:
  __device__ Consumer(const Params& params, Storage<T>& storage, int consumer)
      : params_(params),
        storage_(storage),
        ring_(storage.rings[consumer % T::kRings]),
        consumer_(consumer),
        leader_(threadIdx.x % 32 == 0) {}

  __device__ void Run() {
    if (T::kTurns && consumer_ == 1) PassTurn();  // consumer 0 begins
    for (uint32_t phase = 0;; phase ^= 1) {
      ring_.query_full.wait(phase);
      const QueryTile at = ring_.query_tile.Read();
      if (at.row < 0) return;
      Attend(at);
    }
  }

 private:
  static constexpr float kLn2 = 0.693147180559945f;

  __device__ void Attend(const QueryTile& at) {
    float o[T::kHeadDim / 2];
    Softmax<T> softmax(params_.scale_log2);
    if (at.empty) {
      Release(ring_.query_empty);
#pragma unroll
      for (float& x : o) x = 0;
      Store(at, o, softmax);
      return;
    }
    float s[T::kKeyTile / 2];
    uint32_t p[T::kKeyTile / 4];
    MassNotes<T> notes(params_, storage_, consumer_);

    int stage = Arrived();
    KeyTile keys = ring_.key_tile[stage].Read();
    TakeTurn();
    IssueScores<T>(s, Queries(), Buffer(stage));
    PassTurn();
    cute::warpgroup_wait<0>();
    Fence(s);
    Release(ring_.empty[stage]);
    if (keys.last) Release(ring_.query_empty);
    Weigh(s, keys, softmax);
    if constexpr (T::kMassBlock != 0) notes.Note(softmax, 0);
    PackWeights<T>(s, p);

    int tile = 1;
    for (; !keys.last; ++tile) {
      const int key_stage = Arrived();
      const int value_stage = Arrived();
      keys = ring_.key_tile[key_stage].Read();
      TakeTurn();
      IssueScores<T>(s, Queries(), Buffer(key_stage));
      IssueValues<T>(o, p, Buffer(value_stage), tile > 1);
      PassTurn();
      cute::warpgroup_wait<1>();
      Fence(s);
      Release(ring_.empty[key_stage]);
      if (keys.last) Release(ring_.query_empty);
      const bool rescale = Weigh(s, keys, softmax);
      if constexpr (T::kMassBlock != 0) notes.Note(softmax, tile);
      cute::warpgroup_wait<0>();
      Fence(o);
      Release(ring_.empty[value_stage]);
      if (rescale) Rescale(o, softmax);
      PackWeights<T>(s, p);
    }
    const int value_stage = Arrived();
    IssueValues<T>(o, p, Buffer(value_stage), tile > 1);
    cute::warpgroup_wait<0>();
    Fence(o);
    Release(ring_.empty[value_stage]);
    Store(at, o, softmax);
  }

  // Waits for the ring's next buffer.
  __device__ int Arrived() {
    const int stage = cursor_.stage;
    ring_.full[stage].wait(cursor_.phase);
    cursor_.Advance();
    return stage;
  }

  template <class Barrier>
  __device__ void Release(Barrier& barrier) {
    __syncwarp();  // the other lanes have read, too
    if (leader_) barrier.arrive();
  }

  __device__ void TakeTurn() {
    if (T::kTurns) cutlass::arch::NamedBarrier::sync(256, static_cast<uint32_t>(consumer_));
  }
  __device__ void PassTurn() {
    if (T::kTurns) cutlass::arch::NamedBarrier::arrive(256, static_cast<uint32_t>(1 - consumer_));
  }

  __device__ const uint8_t* Queries() const { return storage_.q[consumer_]; }
  __device__ const uint8_t* Buffer(int stage) const {
    return storage_.buffers[consumer_ % T::kRings][stage];
  }

  __device__ bool Weigh(float (&s)[T::kKeyTile / 2], const KeyTile& keys, Softmax<T>& softmax) {
    bool partial = keys.valid[0] < 64;
    if (T::kKeyTile == 128) partial |= keys.valid[1] < 64;
    if (partial) MaskTail<T>(s, keys);
    return softmax.Update(s);
  }

  __device__ static void Rescale(float (&o)[T::kHeadDim / 2], const Softmax<T>& softmax) {
#pragma unroll
    for (int i = 0; i < T::kHeadDim / 2; ++i) o[i] *= softmax.rescale[i / 2 % 2];
  }

  // Divides by the sums and writes output, log-sum-exp and mass.
  __device__ void Store(const QueryTile& at, float (&o)[T::kHeadDim / 2],
                        const Softmax<T>& softmax) {
    const Row& row = params_.rows[at.row];
    const int thread = static_cast<int>(threadIdx.x % 128);
    const int first =
        at.query_tile * T::kQueryTile + (T::kLists == Lists::kShared ? consumer_ * kQueries : 0);
    float lse[2];
    float factor[2];
    int query[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      query[r] = first + thread / 32 * 16 + thread % 32 / 4 + r * 8;
      const float sum = softmax.Sum(r);
      factor[r] = sum == 0 ? 0 : 1 / sum;  // no key, or none with a finite score
      lse[r] = sum == 0 ? -INFINITY : softmax.reference(r) + log2f(sum);
      if (query[r] < row.length && thread % 4 == 0) {
        params_.lse[at.head * params_.tokens + row.first_token + query[r]] = lse[r] * kLn2;
      }
      if (query[r] >= row.length) lse[r] = INFINITY;
    }
    if constexpr (T::kMassBlock != 0) {
      MassNotes<T>(params_, storage_, consumer_).Finish(row, at, lse);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r)
      StoreRow(at, row.first_token + query[r], r, o, factor[r], query[r] < row.length);
  }

  // A quad has 8 channels in turn, 4 bytes a lane; transposed among its lanes, each lane stores 16
  // bytes and the quad 64 in a row.
  __device__ void StoreRow(const QueryTile& at, int64_t token, int r,
                           const float (&o)[T::kHeadDim / 2], float factor, bool real) {
    using Element = typename T::Element;
    const int lane = static_cast<int>(threadIdx.x % 4);
    auto* out = static_cast<Element*>(params_.out) +
                (token * params_.heads + at.head) * T::kHeadDim + lane * 8;
#pragma unroll
    for (int group = 0; group < T::kHeadDim / 32; ++group) {
      uint32_t w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = o + (group * 4 + i) * 4 + 2 * r;
        w[i] = Pack(pair[0] * factor, pair[1] * factor, Element());
      }
      Exchange(w[0], w[1], 1);
      Exchange(w[2], w[3], 1);
      Exchange(w[0], w[2], 2);
      Exchange(w[1], w[3], 2);
      if (real) *reinterpret_cast<uint4*>(out + group * 32) = make_uint4(w[0], w[1], w[2], w[3]);
    }
  }

  // The off-diagonal swap of a 2x2 transposition between lanes that differ in `bit`.
  __device__ static void Exchange(uint32_t& low, uint32_t& high, unsigned bit) {
    const bool upper = threadIdx.x & bit;
    const uint32_t got = __shfl_xor_sync(kWholeWarp, upper ? low : high, bit);
    (upper ? low : high) = got;
  }

  const Params& params_;
  Storage<T>& storage_;
  Ring<T>& ring_;
  int consumer_;
  bool leader_;
  Cursor<T> cursor_;
};

}  // namespace sparsed::kernels::cuda::hopper
