// SPDX-License-Identifier: Apache-2.0
#include "engine/attention/cost_model.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "engine/base/status_macros.h"
#include "engine/base/torch_guard.h"
#include "kernels/attention.h"
#include "kernels/block_mask.h"
#include "kernels/reorder.h"
#include "kernels/score.h"
#include "kernels/select.h"

namespace sparsed {
namespace {

// Long enough that fixed costs of a call do not count, short enough for a start-up.
constexpr int64_t kTokens = 1024;
// Ratios between kinds of attention do not depend on the number of heads.
constexpr int64_t kMostHeads = 4;
constexpr int kRepeats = 8;
constexpr int32_t kSmallestBlock = 32;
constexpr std::array<double, 2> kDensities = {0.25, 0.75};

size_t BlockIndex(int32_t block_tokens) {
  size_t index = 0;
  while (kSmallestBlock << index < block_tokens) ++index;
  return index;
}

// Shortest of a few runs: what disturbs a run only makes it longer.
template <class Run>
double Seconds(const Run& run) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= kRepeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (i > 0) best = std::min(best, seconds.count());  // the first run warms up
  }
  return best;
}

class Bench {
 public:
  Bench(const ModelInfo& model, at::Device device)
      : heads_(std::min<int64_t>(model.heads, kMostHeads)), options_(at::device(device)) {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(/*seed=*/1);
    const auto random = [&] {
      return at::randn({kTokens, heads_, model.head_dim}, generator, at::kFloat).to(device);
    };
    q_ = random();
    k_ = random();
    v_ = random();
    scores_ = at::rand({heads_, kTokens / kSmallestBlock, kTokens / kSmallestBlock}, generator,
                       at::kFloat)
                  .to(device);
  }

  AttentionCosts Measure() const {
    AttentionCosts costs;
    constexpr double kPairs = double{kTokens} * kTokens;
    // Sparse time over density is a line; its foot is what every call costs.
    double foot = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < costs.sparse_pair.size(); ++i) {
      const auto block = static_cast<int32_t>(kSmallestBlock << i);
      const double low = AttentionSeconds(block, kDensities[0]);
      const double high = AttentionSeconds(block, kDensities[1]);
      // On a busy machine less work can take longer; then through the origin.
      const double slope =
          high > low ? (high - low) / (kDensities[1] - kDensities[0]) : high / kDensities[1];
      costs.sparse_pair[i] = slope / kPairs;
      foot = std::min(foot, std::max(0.0, low - slope * kDensities[0]));
    }
    costs.token = foot / kTokens;
    costs.dense_pair = std::max(0.0, AttentionSeconds(kSmallestBlock, 0) - foot) / kPairs;
    MeasureRebuild(&costs);
    return costs;
  }

 private:
  // density 0: a dense row.
  double AttentionSeconds(int32_t block_tokens, double density) const {
    const int64_t blocks = kTokens / block_tokens;
    kernels::PackedRows rows;
    rows.row_offsets = at::tensor({int64_t{0}, kTokens}, at::kLong);
    rows.mask_offsets = at::full({1}, density > 0 ? 0 : -1, at::kLong);
    rows.block_tokens = at::full({1}, block_tokens, at::kLong);
    rows.mask_arena =
        at::zeros({kernels::MaskWords(heads_, kTokens, block_tokens)}, options_.dtype(at::kInt));
    if (density > 0) Select(rows.mask_arena, blocks, density);
    return Seconds([&] { Finish(kernels::Attention(q_, k_, v_, rows).out); });
  }

  void Select(const at::Tensor& words, int64_t blocks, double density) const {
    const at::Tensor scores = scores_.narrow(1, 0, blocks).narrow(2, 0, blocks).contiguous();
    kernels::SelectBlocks(words, scores, at::Tensor(), {.rule = kernels::kTopK, .budget = density});
  }

  void MeasureRebuild(AttentionCosts* costs) const {
    constexpr int32_t kBlock = 64;
    const at::Tensor words =
        at::empty({kernels::MaskWords(heads_, kTokens, kBlock)}, options_.dtype(at::kInt));
    costs->score_token = Seconds([&] {
                           const at::Tensor logits = kernels::BlockLogits(
                               kernels::ComputeBlockStatistics(q_, kBlock),
                               kernels::ComputeBlockStatistics(k_, kBlock), kTokens, kBlock,
                               /*covariance=*/true);
                           kernels::SelectBlocks(words, logits, at::Tensor(),
                                                 {.rule = kernels::kTopK, .budget = 0.5});
                           Finish(words);
                         }) /
                         kTokens;
    at::Tensor order = kernels::NormOrder(k_, 0);
    costs->order_token = 2 * Seconds([&] { Finish(kernels::NormOrder(k_, 0)); }) / kTokens;
    const at::Tensor moved = at::empty_like(q_);
    // Queries, keys and values there, outputs back.
    costs->move_token = 4 * Seconds([&] {
                          kernels::GatherRows(moved, q_, order);
                          Finish(moved);
                        }) /
                        kTokens;
  }

  // Waits for a device that computes in the background.
  static void Finish(const at::Tensor& x) {
    if (!x.is_cpu()) x.flatten()[0].item();
  }

  const int64_t heads_;
  const at::TensorOptions options_;
  at::Tensor q_, k_, v_;  // [kTokens, heads_, head_dim]
  at::Tensor scores_;     // [heads_, blocks, blocks] of the smallest block size
};

}  // namespace

double AttentionCosts::DenseSeconds(int64_t tokens) const {
  const auto n = static_cast<double>(tokens);
  return token * n + dense_pair * n * n;
}

double AttentionCosts::SparseSeconds(const AttentionSchedule& schedule, double density) const {
  const AttentionPlan& plan = schedule.plan;
  const double n = schedule.length;
  double seconds = token * n + sparse_pair[BlockIndex(plan.block_tokens)] * density * n * n;
  const bool sorted = schedule.query_order_words + schedule.key_order_words > 0;
  if (plan.reorder != ReorderRule::kNone) seconds += move_token * n;
  if (plan.refresh_every > 0 && plan.score != ScoreRule::kPooledMass) {
    seconds += (score_token + (sorted ? order_token : 0)) * n / plan.refresh_every;
  }
  return seconds;
}

GuardReason AttentionCosts::Judge(const AttentionSchedule& schedule, double density) const {
  const double dense = DenseSeconds(schedule.length);
  // A mask that keeps everything is never faster, whatever noise made of the measured costs.
  const auto faster = [&](double kept) {
    return kept < 1 && SparseSeconds(schedule, kept) < dense;
  };
  if (faster(density)) return GuardReason::kNone;
  // One block of each row is the least that any plan keeps.
  return faster(1.0 / schedule.blocks) ? GuardReason::kHighDensity : GuardReason::kShortCanvas;
}

absl::StatusOr<AttentionCosts> MeasureAttentionCosts(const ModelInfo& model, at::Device device) {
  AttentionCosts costs;
  RETURN_IF_ERROR(TorchGuard([&] { costs = Bench(model, device).Measure(); }));
  return costs;
}

}  // namespace sparsed
