// SPDX-License-Identifier: Apache-2.0
#include "engine/forward.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

#include <ATen/ATen.h>

#include "engine/base/status_macros.h"
#include "engine/base/torch_guard.h"
#include "engine/decode/philox.h"
#include "kernels/fused.h"

namespace sparsed {
namespace {

// Logits are made tile by tile: [canvas, vocabulary] in fp32 would be gigabytes for a real
// vocabulary.
constexpr int64_t kLogitTileBytes = int64_t{32} << 20;

at::Tensor LongTensor(const std::vector<int64_t>& values) {
  return at::tensor(values, at::dtype(at::kLong));
}

}  // namespace

absl::Status BatchForward::Run(const std::vector<Row*>& rows) {
  rows_ = rows;
  offsets_ = {0};
  std::vector<AttentionRow> lanes;
  std::vector<int64_t> ids;
  for (const Row* row : rows) {
    first_lane_.push_back(lanes.size());
    for (const Lane& lane : row->lanes) {
      const std::vector<int32_t> tokens = row->LaneTokens(lane, mask_token_);
      ids.insert(ids.end(), tokens.begin(), tokens.end());
      offsets_.push_back(static_cast<int64_t>(ids.size()));
      lanes.push_back({static_cast<int64_t>(tokens.size()), row->schedule.PhaseOf(row->step),
                       &row->schedule, lane.mask.offset_words()});
    }
  }
  return TorchGuard([&] {
    attention_ =
        std::make_unique<StepAttention>(std::move(lanes), mask_words_, model_.compat_score_scale());
    hidden_ = model_.Forward(LongTensor(ids), attention_.get());
  });
}

at::Tensor BatchForward::LogitsAt(size_t lane, const at::Tensor& positions) const {
  return model_.Logits(hidden_.index_select(0, positions + offsets_[lane]));
}

absl::StatusOr<std::vector<TokenEdit>> BatchForward::Predict(
    size_t index, const std::vector<int32_t>& positions) const {
  const Row& row = *rows_[index];
  const DecodePolicy& policy = row.request.policy;
  const size_t lane = first_lane_[index];
  std::vector<TokenEdit> predictions;
  bool finite = true;
  const auto predict_tile = [&](size_t begin, size_t end) {
    std::vector<int64_t> tile(positions.begin() + static_cast<std::ptrdiff_t>(begin),
                              positions.begin() + static_cast<std::ptrdiff_t>(end));
    at::Tensor logits = LogitsAt(lane, LongTensor(tile));
    if (row.lanes.size() > 1) {
      // un + (scale + 1) * (cond - un), LLaDA's classifier-free guidance.
      const at::Tensor unconditional = LogitsAt(lane + 1, LongTensor(tile));
      logits = unconditional + (policy.cfg_scale + 1) * (logits - unconditional);
    }
    std::vector<double> uniforms(tile.size());
    for (size_t i = 0; i < tile.size(); ++i) {
      uniforms[i] = UniformAt(policy.seed, row.step, positions[begin + i], RandomUse::kToken);
    }
    const kernels::CandidateStatistics statistics = kernels::ComputeCandidateStatistics(
        logits, at::tensor(uniforms, at::dtype(at::kDouble)), policy.temperature);
    finite = finite && statistics.finite.all().item<bool>();
    const auto token = statistics.token.accessor<int32_t, 1>();
    const auto probability = statistics.probability.accessor<float, 1>();
    for (size_t i = 0; i < tile.size(); ++i) {
      const auto k = static_cast<int64_t>(i);
      predictions.push_back({positions[begin + i], token[k], probability[k]});
    }
  };
  RETURN_IF_ERROR(TorchGuard([&] {
    const int64_t row_bytes = int64_t{model_.vocabulary_size()} * 4;
    const auto tile = static_cast<size_t>(std::max<int64_t>(1, kLogitTileBytes / row_bytes));
    for (size_t begin = 0; begin < positions.size(); begin += tile) {
      predict_tile(begin, std::min(begin + tile, positions.size()));
    }
  }));
  if (!finite) {
    return absl::InternalError(
        absl::StrCat("the logits of step ", row.step, " contain NaN or Inf"));
  }
  return predictions;
}

double BatchForward::FinishBuild(size_t index) const {
  Row& row = *rows_[index];
  double density = 0;
  double retained = 0;
  double seconds = 0;
  for (size_t lane = 0; lane < row.lanes.size(); ++lane) {
    const MaskBuild& build = attention_->build(first_lane_[index] + lane);
    density += build.density();
    retained += build.retained_mass();
    seconds += build.seconds;
  }
  const auto lanes = static_cast<double>(row.lanes.size());
  row.density = density / lanes;
  row.retained_mass = std::min(retained / lanes, 1.0);  // fp32 sums may pass 1 by a rounding step
  return seconds;
}

}  // namespace sparsed
