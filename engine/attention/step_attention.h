// SPDX-License-Identifier: Apache-2.0
// StepAttention: attention of one step's packed batch, called by a family's forward once per layer.
// Knows each row's phase and mask; builds the masks of rows whose phase says so on the way.
//
//   StepAttention attention(std::move(rows), mask_words, model.compat_score_scale());
//   for (layer…) x = x + project(attention.Run(layer, q, k, v));
//   attention.build(row).retained_mass();
//
// Lives for one step, on the step's thread. Throws what the operators throw.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/attention/mask_builder.h"
#include "engine/attention/pattern.h"
#include "engine/attention/resolve.h"
#include "kernels/attention.h"

namespace sparsed {

// One canvas of the batch. A request with guidance has two.
struct AttentionRow {
  int64_t length = 0;  // tokens
  StepPhase phase = StepPhase::kDense;
  const AttentionSchedule* schedule = nullptr;
  const AttentionPattern* pattern = nullptr;
  int64_t mask_word = 0;  // first word of its part of the arena; not read in kDense

  bool builds() const { return phase == StepPhase::kDenseAndBuild || phase == StepPhase::kRebuild; }
  // Whether its tokens are cut into blocks in another order than the canvas's.
  bool reordered() const {
    return phase != StepPhase::kDense && schedule->plan.reorder != ReorderRule::kNone;
  }
};

// What one row's masks keep.
struct MaskBuild {
  std::vector<HeadSparsity> heads;  // [layers * heads], layer by layer
  double seconds = 0;  // ordering, scoring and selection where they are no by-product of attention

  double density() const;        // mean over layers and heads
  double retained_mass() const;  // mean over layers and heads
};

class StepAttention {
 public:
  // mask_words: the arena's buffer.
  StepAttention(std::vector<AttentionRow> rows, at::Tensor mask_words, double compat_score_scale);

  const at::Tensor& row_offsets() const { return packed_.row_offsets; }  // [rows + 1] int64

  // q [tokens, heads, head_dim], k, v [tokens, kv_heads, head_dim] after rotary embedding -> as q.
  at::Tensor Run(int32_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

  // After the last layer, for a row that builds.
  MaskBuild build(size_t row) const;

 private:
  enum class Side { kQueries, kKeys };
  using MoveRows = void (*)(const at::Tensor& out, const at::Tensor& x, const at::Tensor& order);

  struct PendingBuild {
    std::vector<kernels::MaskStatistics> layers;
    std::vector<at::Tensor> mass;  // of the layers so far, where all of them make the mask
    double seconds = 0;
  };

  int64_t LayerWord(const AttentionRow& row, int32_t layer) const;
  at::Tensor MaskOf(size_t row, int32_t layer) const;
  // The row's order in the arena, [heads, tokens] or [kv_heads, tokens]; undefined: the canvas's.
  at::Tensor OrderOf(size_t row, int32_t layer, Side side) const;
  at::Tensor RowOf(const at::Tensor& x, size_t row) const;

  void PlaceMasks(int32_t layer);
  void SortTokens(int32_t layer, const at::Tensor& q, const at::Tensor& k);
  // x with every reordered row's tokens moved by its order; x itself if there is no such row.
  at::Tensor Move(int32_t layer, Side side, const at::Tensor& x, MoveRows move) const;
  at::Tensor RunOrdered(int32_t layer, const at::Tensor& q, const at::Tensor& k,
                        const at::Tensor& v);
  // mass: the batch's, from AttentionWithMass; undefined where no row's score needs it.
  void BuildMasks(int32_t layer, StepPhase phase, const at::Tensor& q, const at::Tensor& k,
                  const at::Tensor& mass);
  // The masks of all layers, for a row that builds after the last one.
  void BuildRelevantMasks(size_t row);

  const std::vector<AttentionRow> rows_;
  const double compat_score_scale_;
  kernels::PackedRows packed_;
  at::Tensor mass_offsets_;  // [rows] int64, -1 = no mass wanted
  bool plain_ = true;        // no row builds, none is reordered
  std::vector<PendingBuild> builds_;
};

}  // namespace sparsed
