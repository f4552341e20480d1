// SPDX-License-Identifier: Apache-2.0
#include "engine/attention/step_attention.h"

#include <chrono>
#include <utility>

#include <ATen/ATen.h>

#include "kernels/select.h"

namespace sparsed {
namespace {

int64_t MassCells(const AttentionRow& row, int64_t heads) {
  return heads * row.schedule->blocks * row.schedule->blocks;
}

}  // namespace

StepAttention::StepAttention(std::vector<AttentionRow> rows, at::Tensor mask_words,
                             double compat_score_scale)
    : rows_(std::move(rows)), compat_score_scale_(compat_score_scale), builds_(rows_.size()) {
  const auto count = static_cast<int64_t>(rows_.size());
  packed_.mask_arena = std::move(mask_words);
  packed_.row_offsets = at::zeros({count + 1}, at::kLong);
  packed_.mask_offsets = at::full({count}, -1, at::kLong);
  packed_.block_tokens = at::empty({count}, at::kLong);
  auto offsets = packed_.row_offsets.accessor<int64_t, 1>();
  auto blocks = packed_.block_tokens.accessor<int64_t, 1>();
  for (int64_t r = 0; r < count; ++r) {
    const AttentionRow& row = rows_[static_cast<size_t>(r)];
    offsets[r + 1] = offsets[r] + row.length;
    blocks[r] = row.schedule->block_tokens;
    builds_masks_ |= row.phase == StepPhase::kDenseAndBuild;
  }
}

void StepAttention::PlaceMasks(int32_t layer) {
  auto masks = packed_.mask_offsets.accessor<int64_t, 1>();
  for (size_t r = 0; r < rows_.size(); ++r) {
    if (rows_[r].phase != StepPhase::kSparse) continue;
    masks[static_cast<int64_t>(r)] =
        rows_[r].mask_word + layer * rows_[r].schedule->words_per_layer;
  }
}

at::Tensor StepAttention::Run(int32_t layer, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& v) {
  PlaceMasks(layer);
  if (builds_masks_) return RunAndBuild(layer, q, k, v);
  return kernels::Attention(q, k, v, packed_).out;
}

at::Tensor StepAttention::RunAndBuild(int32_t layer, const at::Tensor& q, const at::Tensor& k,
                                      const at::Tensor& v) {
  const int64_t heads = q.size(1);
  at::Tensor mass_offsets = at::full({static_cast<int64_t>(rows_.size())}, -1, at::kLong);
  auto offsets = mass_offsets.accessor<int64_t, 1>();
  int64_t mass_size = 0;
  for (size_t r = 0; r < rows_.size(); ++r) {
    if (rows_[r].phase != StepPhase::kDenseAndBuild) continue;
    offsets[static_cast<int64_t>(r)] = mass_size;
    mass_size += MassCells(rows_[r], heads);
  }
  const kernels::AttentionMassResult result =
      kernels::AttentionWithMass(q, k, v, packed_, mass_offsets, mass_size);
  for (size_t r = 0; r < rows_.size(); ++r) {
    const int64_t offset = offsets[static_cast<int64_t>(r)];
    if (offset < 0) continue;
    const int64_t blocks = rows_[r].schedule->blocks;
    const at::Tensor mass =
        result.mass.narrow(0, offset, MassCells(rows_[r], heads)).view({heads, blocks, blocks});
    const int64_t begin = packed_.row_offsets[static_cast<int64_t>(r)].item<int64_t>();
    BuildMask(r, layer, mass, q.narrow(0, begin, rows_[r].length),
              k.narrow(0, begin, rows_[r].length));
  }
  return result.out;
}

void StepAttention::BuildMask(size_t row, int32_t layer, const at::Tensor& mass,
                              const at::Tensor& q, const at::Tensor& k) {
  const auto begin = std::chrono::steady_clock::now();
  const AttentionSchedule& schedule = *rows_[row].schedule;
  const at::Tensor words = packed_.mask_arena.narrow(
      0, rows_[row].mask_word + layer * schedule.words_per_layer, schedule.words_per_layer);
  if (schedule.select == SelectRule::kTopRatioCompat) {
    const auto score = [&](int64_t first_key_block) {
      return kernels::PooledMass(q, k, schedule.block_tokens, compat_score_scale_, first_key_block);
    };
    kernels::SelectBlocks(words, score(0), score(schedule.first_generation_block),
                          kernels::kTopRatioCompat, schedule.ratio,
                          schedule.first_generation_block);
  } else {
    kernels::SelectBlocks(words, mass, at::Tensor(), kernels::kTopRatio, schedule.ratio,
                          schedule.first_generation_block);
  }
  const kernels::MaskStatistics statistics =
      kernels::ComputeMaskStatistics(words, mass, rows_[row].length, schedule.block_tokens);
  MaskBuild& build = builds_[row];
  build.kept_blocks += statistics.kept.sum().item<int64_t>();
  build.total_blocks += mass.numel();
  build.retained_sum += statistics.retained.sum().item<double>();
  build.retained_terms += mass.size(0);
  build.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace sparsed
