// SPDX-License-Identifier: Apache-2.0
// StepAttention: attention of one step's packed batch, called by a family's forward once per layer.
// Knows each row's phase and mask; builds the masks of rows whose phase is kDenseAndBuild on the
// way.
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

#include "engine/attention/resolve.h"
#include "kernels/attention.h"

namespace sparsed {

// One canvas of the batch. A request with guidance has two.
struct AttentionRow {
  int64_t length = 0;  // tokens
  StepPhase phase = StepPhase::kDense;
  const AttentionSchedule* schedule = nullptr;
  int64_t mask_word = 0;  // first word of its masks in the arena; not read in kDense
};

// What one row's mask keeps, summed over layers and heads.
struct MaskBuild {
  int64_t kept_blocks = 0;
  int64_t total_blocks = 0;
  double retained_sum = 0;  // of the masks' retained mass, one term per layer and head
  int64_t retained_terms = 0;
  double seconds = 0;  // selection, and scoring where it is not a by-product of attention

  double density() const {
    return static_cast<double>(kept_blocks) / static_cast<double>(total_blocks);
  }
  double retained_mass() const { return retained_sum / static_cast<double>(retained_terms); }
};

class StepAttention {
 public:
  // mask_words: the arena's buffer. compat_score_scale: logit scale that the family's reference
  // code uses when it scores blocks (SelectRule::kTopRatioCompat).
  StepAttention(std::vector<AttentionRow> rows, at::Tensor mask_words, double compat_score_scale);

  const at::Tensor& row_offsets() const { return packed_.row_offsets; }  // [rows + 1] int64

  // q [tokens, heads, head_dim], k, v [tokens, kv_heads, head_dim] after rotary embedding -> as q.
  at::Tensor Run(int32_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

  const MaskBuild& build(size_t row) const { return builds_[row]; }

 private:
  void PlaceMasks(int32_t layer);
  at::Tensor RunAndBuild(int32_t layer, const at::Tensor& q, const at::Tensor& k,
                         const at::Tensor& v);
  // mass [heads, blocks, blocks] of the row in this layer.
  void BuildMask(size_t row, int32_t layer, const at::Tensor& mass, const at::Tensor& q,
                 const at::Tensor& k);

  const std::vector<AttentionRow> rows_;
  const double compat_score_scale_;
  kernels::PackedRows packed_;
  bool builds_masks_ = false;
  std::vector<MaskBuild> builds_;
};

}  // namespace sparsed
