// SPDX-License-Identifier: Apache-2.0
#include "engine/attention/step_attention.h"

#include <chrono>
#include <utility>

#include <ATen/ATen.h>

#include "kernels/relevance.h"
#include "kernels/reorder.h"

namespace sparsed {
namespace {

using SteadyClock = std::chrono::steady_clock;

double SecondsSince(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

int64_t MassCells(const AttentionRow& row, int64_t heads) {
  return heads * row.schedule->blocks * row.schedule->blocks;
}

bool WantsMass(const AttentionRow& row) {
  return row.phase == StepPhase::kDenseAndBuild &&
         row.schedule->plan.score == ScoreRule::kPooledMass;
}

double MeanOf(const std::vector<HeadSparsity>& heads, double HeadSparsity::*field) {
  double sum = 0;
  for (const HeadSparsity& head : heads) sum += head.*field;
  return sum / static_cast<double>(heads.size());
}

}  // namespace

double MaskBuild::density() const { return MeanOf(heads, &HeadSparsity::density); }
double MaskBuild::retained_mass() const { return MeanOf(heads, &HeadSparsity::retained_mass); }

StepAttention::StepAttention(std::vector<AttentionRow> rows, at::Tensor mask_words,
                             double compat_score_scale)
    : rows_(std::move(rows)), compat_score_scale_(compat_score_scale), builds_(rows_.size()) {
  const auto count = static_cast<int64_t>(rows_.size());
  packed_.mask_arena = std::move(mask_words);
  packed_.row_offsets = at::zeros({count + 1}, at::kLong);
  packed_.mask_offsets = at::full({count}, -1, at::kLong);
  packed_.block_tokens = at::empty({count}, at::kLong);
  mass_offsets_ = at::full({count}, -1, at::kLong);
  auto offsets = packed_.row_offsets.accessor<int64_t, 1>();
  auto blocks = packed_.block_tokens.accessor<int64_t, 1>();
  for (int64_t r = 0; r < count; ++r) {
    const AttentionRow& row = rows_[static_cast<size_t>(r)];
    offsets[r + 1] = offsets[r] + row.length;
    blocks[r] = row.schedule->plan.block_tokens;
    plain_ = plain_ && !row.builds() && !row.reordered();
  }
}

int64_t StepAttention::LayerWord(const AttentionRow& row, int32_t layer) const {
  return row.mask_word + layer * row.schedule->words_per_layer();
}

at::Tensor StepAttention::MaskOf(size_t row, int32_t layer) const {
  return packed_.mask_arena.narrow(0, LayerWord(rows_[row], layer),
                                   rows_[row].schedule->mask_words);
}

at::Tensor StepAttention::OrderOf(size_t row, int32_t layer, Side side) const {
  const AttentionRow& owner = rows_[row];
  if (!owner.reordered()) return {};
  const AttentionSchedule& schedule = *owner.schedule;
  if (schedule.plan.reorder == ReorderRule::kFractal) return owner.pattern->fractal_order;
  const bool queries = side == Side::kQueries;
  const int64_t count = queries ? schedule.query_order_words : schedule.key_order_words;
  if (count == 0) return {};
  const int64_t begin =
      LayerWord(owner, layer) + schedule.mask_words + (queries ? 0 : schedule.query_order_words);
  return packed_.mask_arena.narrow(0, begin, count).view({-1, owner.length});
}

at::Tensor StepAttention::RowOf(const at::Tensor& x, size_t row) const {
  const auto offsets = packed_.row_offsets.accessor<int64_t, 1>();
  return x.narrow(0, offsets[static_cast<int64_t>(row)], rows_[row].length);
}

void StepAttention::PlaceMasks(int32_t layer) {
  auto masks = packed_.mask_offsets.accessor<int64_t, 1>();
  for (size_t r = 0; r < rows_.size(); ++r) {
    const StepPhase phase = rows_[r].phase;
    if (phase != StepPhase::kSparse && phase != StepPhase::kRebuild) continue;
    masks[static_cast<int64_t>(r)] = LayerWord(rows_[r], layer);
  }
}

at::Tensor StepAttention::Run(int32_t layer, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& v) {
  PlaceMasks(layer);
  if (plain_) return kernels::Attention(q, k, v, packed_).out;
  SortTokens(layer, q, k);
  const at::Tensor out = RunOrdered(layer, Move(layer, Side::kQueries, q, kernels::GatherRows),
                                    Move(layer, Side::kKeys, k, kernels::GatherRows),
                                    Move(layer, Side::kKeys, v, kernels::GatherRows));
  return Move(layer, Side::kQueries, out, kernels::ScatterRows);
}

void StepAttention::SortTokens(int32_t layer, const at::Tensor& q, const at::Tensor& k) {
  for (size_t r = 0; r < rows_.size(); ++r) {
    if (!rows_[r].builds()) continue;
    const SteadyClock::time_point begin = SteadyClock::now();
    const AttentionPlan& plan = rows_[r].schedule->plan;
    const int64_t window = int64_t{plan.sort_blocks} * plan.block_tokens;
    if (rows_[r].schedule->query_order_words > 0) {
      OrderOf(r, layer, Side::kQueries).copy_(kernels::NormOrder(RowOf(q, r), window));
    }
    if (rows_[r].schedule->key_order_words > 0) {
      OrderOf(r, layer, Side::kKeys).copy_(kernels::NormOrder(RowOf(k, r), window));
    }
    builds_[r].seconds += SecondsSince(begin);
  }
}

at::Tensor StepAttention::Move(int32_t layer, Side side, const at::Tensor& x, MoveRows move) const {
  std::vector<at::Tensor> orders;
  bool moves = false;
  for (size_t r = 0; r < rows_.size(); ++r) {
    orders.push_back(OrderOf(r, layer, side));
    moves = moves || orders.back().defined();
  }
  if (!moves) return x;
  at::Tensor moved = at::empty(x.sizes(), x.options());
  for (size_t r = 0; r < rows_.size(); ++r) {
    if (orders[r].defined()) {
      move(RowOf(moved, r), RowOf(x, r), orders[r]);
    } else {
      RowOf(moved, r).copy_(RowOf(x, r));
    }
  }
  return moved;
}

at::Tensor StepAttention::RunOrdered(int32_t layer, const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v) {
  BuildMasks(layer, StepPhase::kRebuild, q, k, at::Tensor());
  auto offsets = mass_offsets_.accessor<int64_t, 1>();
  int64_t mass_size = 0;
  for (size_t r = 0; r < rows_.size(); ++r) {
    if (!WantsMass(rows_[r])) continue;
    offsets[static_cast<int64_t>(r)] = mass_size;
    mass_size += MassCells(rows_[r], q.size(1));
  }
  at::Tensor out;
  at::Tensor mass;
  if (mass_size > 0) {
    const kernels::AttentionMassResult result =
        kernels::AttentionWithMass(q, k, v, packed_, mass_offsets_, mass_size);
    out = result.out;
    mass = result.mass;
  } else {
    out = kernels::Attention(q, k, v, packed_).out;
  }
  BuildMasks(layer, StepPhase::kDenseAndBuild, q, k, mass);
  return out;
}

void StepAttention::BuildMasks(int32_t layer, StepPhase phase, const at::Tensor& q,
                               const at::Tensor& k, const at::Tensor& mass) {
  const auto offsets = mass_offsets_.accessor<int64_t, 1>();
  for (size_t r = 0; r < rows_.size(); ++r) {
    if (rows_[r].phase != phase) continue;
    const SteadyClock::time_point begin = SteadyClock::now();
    MaskInput input;
    input.q = RowOf(q, r);
    input.k = RowOf(k, r);
    if (WantsMass(rows_[r])) {
      const int64_t blocks = rows_[r].schedule->blocks;
      input.mass = mass.narrow(0, offsets[static_cast<int64_t>(r)], MassCells(rows_[r], q.size(1)))
                       .view({q.size(1), blocks, blocks});
    }
    if (rows_[r].schedule->builds_after_last_layer()) {
      builds_[r].mass.push_back(input.mass);
      if (layer + 1 == rows_[r].schedule->layers) BuildRelevantMasks(r);
    } else {
      builds_[r].layers.push_back(BuildMask(*rows_[r].schedule, *rows_[r].pattern, input,
                                            compat_score_scale_, MaskOf(r, layer)));
    }
    builds_[r].seconds += SecondsSince(begin);
  }
}

void StepAttention::BuildRelevantMasks(size_t row) {
  const AttentionSchedule& schedule = *rows_[row].schedule;
  PendingBuild& build = builds_[row];
  const at::Tensor rows = kernels::RelevantQueryBlocks(
      kernels::QueryBlockRelevance(build.mass, schedule.first_open_block),
      schedule.first_open_block, schedule.plan.relevant_share);
  for (int32_t layer = 0; layer < schedule.layers; ++layer) {
    MaskInput input;
    input.mass = build.mass[static_cast<size_t>(layer)];
    input.selecting = rows[layer];
    build.layers.push_back(
        BuildMask(schedule, *rows_[row].pattern, input, compat_score_scale_, MaskOf(row, layer)));
  }
  build.mass.clear();
}

MaskBuild StepAttention::build(size_t row) const {
  MaskBuild build;
  build.seconds = builds_[row].seconds;
  const double blocks = rows_[row].schedule->blocks;
  for (const kernels::MaskStatistics& layer : builds_[row].layers) {
    const at::Tensor kept = layer.kept.cpu();
    const at::Tensor retained = layer.retained.cpu();
    const auto kept_of = kept.accessor<int64_t, 1>();
    const auto retained_of = retained.accessor<double, 1>();
    for (int64_t h = 0; h < kept.size(0); ++h) {
      build.heads.push_back({static_cast<double>(kept_of[h]) / (blocks * blocks), retained_of[h]});
    }
  }
  return build;
}

}  // namespace sparsed
