// SPDX-License-Identifier: Apache-2.0
// One denoising step's network part: packs the rows' lanes, runs the forward once, and turns hidden
// states into one prediction per candidate position. Private to the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/types/span.h>

#include <ATen/core/Tensor.h>

#include "engine/attention/step_attention.h"
#include "engine/model/family.h"
#include "engine/row.h"

namespace sparsed {

// What the network says of some positions of one canvas.
struct Predictions {
  std::vector<TokenEdit> edits;  // one per position
  bool finite = true;            // no NaN and no Inf among the logits
};

// The rows of a step and what the forward made of them. Lives for one step.
class BatchForward {
 public:
  // mask_words: the arena's buffer.
  BatchForward(const DenoisingModel& model, at::Tensor mask_words, int32_t mask_token)
      : model_(model), mask_words_(std::move(mask_words)), mask_token_(mask_token) {}

  // Runs every lane of every row in one forward. Statuses of TorchGuard.
  absl::Status Run(const std::vector<Row*>& rows);

  // Token and probability for each of the positions of row `index` of Run's list (the policy's
  // temperature, seed and guidance applied). Statuses of TorchGuard.
  absl::StatusOr<Predictions> Predict(size_t index, const std::vector<int32_t>& positions) const;

  // After a step that built masks: what they keep, mean over the row's lanes.
  MaskBuild FinishBuild(size_t index) const;

 private:
  at::Tensor LogitsAt(size_t lane, const at::Tensor& positions) const;
  at::Tensor GuidedLogits(size_t index, const at::Tensor& positions) const;
  // Positions whose logits fit one tile; appends to `predictions`.
  void PredictTile(size_t index, absl::Span<const int32_t> positions,
                   Predictions* predictions) const;

  const DenoisingModel& model_;
  const at::Tensor mask_words_;
  const int32_t mask_token_;
  std::vector<Row*> rows_;
  std::vector<size_t> first_lane_;  // [rows] index into the packed lanes
  std::vector<int64_t> offsets_;    // [lanes + 1]
  std::unique_ptr<StepAttention> attention_;
  at::Tensor hidden_;  // [tokens, hidden_size]
};

}  // namespace sparsed
