// SPDX-License-Identifier: Apache-2.0
// AttentionPlan: score x select x schedule of one request. Presets are named values of this struct.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>
#include <absl/types/span.h>

namespace sparsed {

// How a key block's importance for a query block is measured.
enum class ScoreRule {
  kNone,        // dense attention, no mask
  kPooledMass,  // softmax mass of the key block, averaged over the query block (SparseD, Eq. 3)
};

// Which key blocks a query block keeps. Prompt and generation key blocks are ranked apart
// ("isolated"): the generation part starts at block last = min(ceil(prompt / block), blocks - 1).
enum class SelectRule {
  kAll,
  kTopRatio,        // ceil(ratio * n) of the n blocks of either part, at least 1 (SparseD, Eq. 5-6)
  kTopRatioCompat,  // as the SparseD reference code counts, scales and renormalises
};

// The schedule is static: steps before the build run dense, the last of them builds the mask, every
// later step uses it. If no step would be left, the request is dense throughout and holds no mask.
struct AttentionPlan {
  std::string preset = "dense";  // the preset this plan started from
  ScoreRule score = ScoreRule::kNone;
  SelectRule select = SelectRule::kAll;
  double ratio = 1;            // kept share of key blocks, in (0, 1]
  double skip = 1;             // share of the first steps that run dense, in [0, 1]
  int32_t block_tokens = 128;  // query and key block size: 32, 64 or 128
};

struct AttentionPreset {
  AttentionPlan plan;
  const char* description;
};

// All presets, "dense" first. The list is presets.cc.
absl::Span<const AttentionPreset> AttentionPresets();

// The plan of a preset. INVALID_ARGUMENT on "attention.preset" names the value and the known
// presets.
absl::StatusOr<AttentionPlan> FindAttentionPreset(const std::string& name);

// INVALID_ARGUMENT on "attention.ratio", "attention.skip" or "attention.block_tokens".
absl::Status ValidateAttentionPlan(const AttentionPlan& plan);

}  // namespace sparsed
