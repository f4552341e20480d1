// SPDX-License-Identifier: Apache-2.0
// AttentionPlan: score x select x reorder x prior x schedule of one request. Presets are named
// values of this struct; a request may override single fields, and every combination that has a
// meaning runs.
//
//   ASSIGN_OR_RETURN(AttentionPlan plan, FindAttentionPreset("sparsed"));
//   plan.ratio = 0.1;
//   RETURN_IF_ERROR(ValidateAttentionPlan(plan, canvas_length));
//
// How a mask is made, per layer and head: the tokens are reordered, cut into blocks of
// block_tokens, every key block is scored for every query block, a rule selects from the scores,
// and the prior's blocks are added.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>
#include <absl/types/span.h>

#include "engine/attention/rules.h"

namespace sparsed {

// Sizes along time, height and width of a canvas that is a video; of tokens or of 8x8 tiles.
struct Extent3 {
  int32_t t = 0;
  int32_t h = 0;
  int32_t w = 0;
  bool operator==(const Extent3&) const = default;
};

// The schedule is static: the first `skip` of the steps run dense. A mask that is built once comes
// from the last dense step and serves all later ones. With refresh_every = n, the first sparse step
// and every n-th after it build a new one. If no step would be left, the request is dense
// throughout and holds no mask.
struct AttentionPlan {
  std::string preset = "dense";  // the preset this plan started from
  ScoreRule score = ScoreRule::kNone;
  SelectRule select = SelectRule::kNone;
  ReorderRule reorder = ReorderRule::kNone;
  PriorRule prior = PriorRule::kNone;

  double ratio = 1;  // kept share of key blocks, in (0, 1]; read by the top_* rules
  double mass = 1;   // kept share of the scores' mass, in (0, 1]; read by rule mass
  // Every query block that keeps its selection gets its best blocks added until they hold this share
  // of the attention mass (as the score measures it), in [0, 1]; 0 = off.
  double min_retained_mass = 0;

  // Share of the query blocks, in (0, 1], that keep their selection besides the generation's own:
  // those whose outputs the generated tokens depend on most (kernels/relevance.h). The others keep
  // their best block only. 1 = all keep it.
  double relevant_share = 1;

  int32_t sink_blocks = 0;    // prior sink_window: first key blocks that every query block keeps
  int32_t window_blocks = 0;  // prior sink_window: key blocks kept on either side of the own one
  Extent3 sta_window = {};    // prior sta: tiles, w // 2 to either side, clipped at the borders
  Extent3 grid = {};          // tokens of the canvas as a video; zeros = text
  int32_t sort_blocks =
      4;  // reorder norm_*: window in blocks inside which tokens are sorted; 0 = all

  double skip = 1;            // share of the first steps that run dense, in [0, 1]
  int32_t refresh_every = 0;  // build a new mask every so many steps; 0 = build once, 1 = each step
  int32_t block_tokens = 128;  // query and key block size: 32, 64, 128 or 256
  // Whether the engine may run the request dense where sparse attention would not be faster.
  bool guard = true;

  bool sparse() const { return score != ScoreRule::kNone || prior != PriorRule::kNone; }
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

// INVALID_ARGUMENT names the field ("attention.ratio", ...), its value and the limit; among them
// fields that contradict each other, such as a grid that is not canvas_length tokens.
absl::Status ValidateAttentionPlan(const AttentionPlan& plan, int32_t canvas_length);

}  // namespace sparsed
