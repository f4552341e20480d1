// SPDX-License-Identifier: Apache-2.0
#include "engine/decode/commit.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <absl/strings/str_cat.h>

#include "engine/base/invalid_field.h"
#include "engine/decode/philox.h"

namespace sparsed {
namespace {

constexpr int32_t kMaxSteps = 1 << 20;

absl::Status ValidateSteps(const DecodePolicy& policy, int32_t generation_length) {
  if (policy.block_length < 1 || generation_length % policy.block_length != 0) {
    return InvalidField("decoding.block_length", policy.block_length,
                        absl::StrCat("must divide gen_length ", generation_length));
  }
  const int32_t blocks = generation_length / policy.block_length;
  if (policy.steps < 1 || policy.steps > kMaxSteps) {
    return InvalidField("decoding.steps", policy.steps, absl::StrCat("must be in 1..", kMaxSteps));
  }
  if (policy.steps % blocks != 0) {
    return InvalidField(
        "decoding.steps", policy.steps,
        absl::StrCat("must be a multiple of the number of blocks, ", blocks, " (gen_length ",
                     generation_length, " / block_length ", policy.block_length, ")"));
  }
  return absl::OkStatus();
}

bool IsEndToken(const DecodePolicy& policy, int32_t token) {
  return std::find(policy.end_tokens.begin(), policy.end_tokens.end(), token) !=
         policy.end_tokens.end();
}

}  // namespace

absl::Status ValidatePolicy(const DecodePolicy& policy, const Canvas& canvas) {
  if (canvas.generation_length() < 1) {
    return InvalidField("decoding.gen_length", canvas.generation_length(), "must be at least 1");
  }
  absl::Status steps = ValidateSteps(policy, canvas.generation_length());
  if (!steps.ok()) return steps;
  // Written so that NaN fails each comparison.
  if (!(policy.temperature >= 0 && policy.temperature <= kMaxTemperature)) {
    return InvalidField("decoding.temperature", policy.temperature,
                        absl::StrCat("must be in 0..", kMaxTemperature));
  }
  if (!(policy.cfg_scale >= 0 && policy.cfg_scale <= kMaxCfgScale)) {
    return InvalidField("decoding.cfg_scale", policy.cfg_scale,
                        absl::StrCat("must be in 0..", kMaxCfgScale));
  }
  return absl::OkStatus();
}

StepPlace PlaceOf(const DecodePolicy& policy, const Canvas& canvas, int32_t step) {
  StepPlace place;
  place.steps_in_block = policy.steps / (canvas.generation_length() / policy.block_length);
  place.step_in_block = step % place.steps_in_block;
  place.block_begin = canvas.prompt_length + step / place.steps_in_block * policy.block_length;
  place.block_end = place.block_begin + policy.block_length;
  return place;
}

int32_t CountOpen(const Canvas& canvas, int32_t begin, int32_t end) {
  return std::accumulate(canvas.open.begin() + begin, canvas.open.begin() + end, int32_t{0});
}

std::vector<int32_t> CandidatePositions(const Canvas& canvas, const StepPlace& place) {
  std::vector<int32_t> positions;
  for (int32_t p = 0; p < place.block_end; ++p) {
    if (canvas.open[static_cast<size_t>(p)] != 0) positions.push_back(p);
  }
  return positions;
}

int32_t CommitBudget(const StepPlace& place, int32_t block_open) {
  const int32_t extra = place.step_in_block < block_open % place.steps_in_block ? 1 : 0;
  return block_open / place.steps_in_block + extra;
}

std::vector<size_t> ChooseCommits(const DecodePolicy& policy, int32_t step, int32_t budget,
                                  const std::vector<TokenEdit>& predictions) {
  std::vector<double> rank(predictions.size());
  for (size_t i = 0; i < predictions.size(); ++i) {
    rank[i] = policy.remasking == Remasking::kRandom
                  ? UniformAt(policy.seed, step, predictions[i].position, RandomUse::kOrder)
                  : static_cast<double>(predictions[i].confidence);
  }
  std::vector<size_t> order(predictions.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&rank](size_t a, size_t b) { return rank[a] > rank[b]; });
  order.resize(std::min(order.size(), static_cast<size_t>(budget)));
  std::sort(order.begin(), order.end());
  return order;
}

void CommitEdits(const std::vector<TokenEdit>& edits, int32_t mask_token, Canvas* canvas) {
  for (const TokenEdit& edit : edits) {
    const auto position = static_cast<size_t>(edit.position);
    canvas->tokens[position] = edit.token;
    canvas->open[position] = edit.token == mask_token ? 1 : 0;
  }
}

bool HasEndToken(const DecodePolicy& policy, const Canvas& canvas) {
  for (int32_t p = canvas.prompt_length; p < canvas.length(); ++p) {
    const auto position = static_cast<size_t>(p);
    if (canvas.open[position] == 0 && IsEndToken(policy, canvas.tokens[position])) return true;
  }
  return false;
}

std::vector<TokenEdit> CloseAfterEnd(const DecodePolicy& policy, Canvas* canvas) {
  std::vector<TokenEdit> closed;
  int32_t end_token = -1;
  for (int32_t p = canvas->prompt_length; p < canvas->length(); ++p) {
    const auto position = static_cast<size_t>(p);
    if (canvas->open[position] == 0) {
      if (end_token < 0 && IsEndToken(policy, canvas->tokens[position]))
        end_token = canvas->tokens[position];
    } else if (end_token >= 0) {
      canvas->tokens[position] = end_token;
      canvas->open[position] = 0;
      closed.push_back({p, end_token, 1.0f});
    }
  }
  return closed;
}

}  // namespace sparsed
