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

template <class Value>
at::Tensor OnDevice(const std::vector<Value>& values, const at::Tensor& like) {
  return at::tensor(values).to(like.device());
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
                       &row->schedule, &row->pattern, lane.mask.offset_words()});
    }
  }
  return TorchGuard([&] {
    attention_ =
        std::make_unique<StepAttention>(std::move(lanes), mask_words_, model_.compat_score_scale());
    hidden_ = model_.Forward(OnDevice(ids, mask_words_), attention_.get());
  });
}

at::Tensor BatchForward::LogitsAt(size_t lane, const at::Tensor& positions) const {
  return model_.Logits(hidden_.index_select(0, positions + offsets_[lane]));
}

at::Tensor BatchForward::GuidedLogits(size_t index, const at::Tensor& positions) const {
  const size_t lane = first_lane_[index];
  at::Tensor conditional = LogitsAt(lane, positions);
  if (rows_[index]->lanes.size() == 1) return conditional;
  // un + (scale + 1) * (cond - un), LLaDA's classifier-free guidance.
  const at::Tensor unconditional = LogitsAt(lane + 1, positions);
  const double scale = rows_[index]->request.policy.cfg_scale;
  return unconditional + (scale + 1) * (conditional - unconditional);
}

void BatchForward::PredictTile(size_t index, absl::Span<const int32_t> positions,
                               Predictions* predictions) const {
  const Row& row = *rows_[index];
  const DecodePolicy& policy = row.request.policy;
  std::vector<double> uniforms;
  for (const int32_t position : positions) {
    uniforms.push_back(UniformAt(policy.seed, row.step, position, RandomUse::kToken));
  }
  const std::vector<int64_t> places(positions.begin(), positions.end());
  const kernels::CandidateStatistics statistics =
      kernels::ComputeCandidateStatistics(GuidedLogits(index, OnDevice(places, hidden_)),
                                          OnDevice(uniforms, hidden_), policy.temperature);
  predictions->finite = predictions->finite && statistics.finite.all().item<bool>();
  const at::Tensor tokens = statistics.token.cpu();
  const at::Tensor probabilities = statistics.probability.cpu();
  const auto token = tokens.accessor<int32_t, 1>();
  const auto probability = probabilities.accessor<float, 1>();
  for (size_t i = 0; i < positions.size(); ++i) {
    const auto k = static_cast<int64_t>(i);
    predictions->edits.push_back({positions[i], token[k], probability[k]});
  }
}

absl::StatusOr<Predictions> BatchForward::Predict(size_t index,
                                                  const std::vector<int32_t>& positions) const {
  const int64_t logit_bytes = int64_t{model_.vocabulary_size()} * 4;
  const auto tile = static_cast<size_t>(std::max<int64_t>(1, kLogitTileBytes / logit_bytes));
  Predictions predictions;
  RETURN_IF_ERROR(TorchGuard([&] {
    for (size_t begin = 0; begin < positions.size(); begin += tile) {
      PredictTile(index, absl::MakeConstSpan(positions).subspan(begin, tile), &predictions);
    }
  }));
  return predictions;
}

MaskBuild BatchForward::FinishBuild(size_t index) const {
  const size_t lanes = rows_[index]->lanes.size();
  const auto share = 1.0 / static_cast<double>(lanes);
  MaskBuild mean;
  for (size_t lane = 0; lane < lanes; ++lane) {
    const MaskBuild build = attention_->build(first_lane_[index] + lane);
    mean.seconds += build.seconds;
    mean.heads.resize(build.heads.size(), {.density = 0, .retained_mass = 0});
    for (size_t i = 0; i < build.heads.size(); ++i) {
      mean.heads[i].density += build.heads[i].density * share;
      mean.heads[i].retained_mass += build.heads[i].retained_mass * share;
    }
  }
  return mean;
}

}  // namespace sparsed
