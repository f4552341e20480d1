// SPDX-License-Identifier: Apache-2.0
#include <absl/strings/str_cat.h>

#include "engine/attention/plan.h"
#include "engine/base/invalid_field.h"
#include "engine/base/status_macros.h"

namespace sparsed {
namespace {

// Edge of a video's tile: 8x8 tokens of one frame are one block.
constexpr int32_t kTileEdge = 8;
constexpr int32_t kTileTokens = kTileEdge * kTileEdge;

absl::Status CheckShare(const char* field, double value, bool zero_allowed) {
  // Written so that NaN fails each comparison.
  if (value <= 1 && (value > 0 || (zero_allowed && value == 0))) return absl::OkStatus();
  return InvalidField(field, value, zero_allowed ? "must be in [0, 1]" : "must be in (0, 1]");
}

absl::Status CheckNotNegative(const char* field, int32_t value) {
  if (value >= 0) return absl::OkStatus();
  return InvalidField(field, value, "must not be negative");
}

absl::Status CheckNumbers(const AttentionPlan& plan) {
  RETURN_IF_ERROR(CheckShare("attention.ratio", plan.ratio, false));
  RETURN_IF_ERROR(CheckShare("attention.mass", plan.mass, false));
  RETURN_IF_ERROR(CheckShare("attention.skip", plan.skip, true));
  RETURN_IF_ERROR(CheckShare("attention.min_retained_mass", plan.min_retained_mass, true));
  RETURN_IF_ERROR(CheckShare("attention.relevant_share", plan.relevant_share, false));
  RETURN_IF_ERROR(CheckNotNegative("attention.sink_blocks", plan.sink_blocks));
  RETURN_IF_ERROR(CheckNotNegative("attention.window_blocks", plan.window_blocks));
  RETURN_IF_ERROR(CheckNotNegative("attention.sort_blocks", plan.sort_blocks));
  RETURN_IF_ERROR(CheckNotNegative("attention.refresh_every", plan.refresh_every));
  for (const int32_t block_tokens : {32, 64, 128, 256}) {
    if (plan.block_tokens == block_tokens) return absl::OkStatus();
  }
  return InvalidField("attention.block_tokens", plan.block_tokens, "must be 32, 64, 128 or 256");
}

// Scores without a selection, or the reverse, would silently do nothing.
absl::Status CheckComposition(const AttentionPlan& plan) {
  const bool scored = plan.score != ScoreRule::kNone;
  if (scored && plan.select == SelectRule::kNone) {
    return InvalidField("attention.select", RuleName(plan.select),
                        absl::StrCat("score \"", RuleName(plan.score), "\" needs a selection"));
  }
  if (!scored && plan.select != SelectRule::kNone) {
    return InvalidField("attention.score", RuleName(plan.score),
                        absl::StrCat("selection \"", RuleName(plan.select), "\" needs a score"));
  }
  if (plan.select == SelectRule::kTopRatioCompat && plan.score != ScoreRule::kPooledMass) {
    return InvalidField("attention.score", RuleName(plan.score),
                        "selection \"top_ratio_compat\" needs score \"pooled_mass\"");
  }
  if (plan.score == ScoreRule::kPooledMass && plan.refresh_every == 1) {
    return InvalidField("attention.refresh_every", plan.refresh_every,
                        "would run every step dense: score \"pooled_mass\" is measured in dense "
                        "steps; must be 0 or at least 2");
  }
  if (!scored && plan.min_retained_mass > 0) {
    return InvalidField("attention.min_retained_mass", plan.min_retained_mass,
                        "needs a score that measures mass");
  }
  if (plan.select == SelectRule::kTopRatioCompat && plan.min_retained_mass > 0) {
    return InvalidField("attention.min_retained_mass", plan.min_retained_mass,
                        "selection \"top_ratio_compat\" keeps what the reference code keeps");
  }
  return absl::OkStatus();
}

// What the generated tokens depend on is followed through the blocks of all layers, by their mass.
absl::Status CheckRelevance(const AttentionPlan& plan) {
  if (plan.relevant_share == 1) return absl::OkStatus();
  const auto refuse = [&](const std::string& why) {
    return InvalidField("attention.relevant_share", plan.relevant_share, why);
  };
  if (plan.score != ScoreRule::kPooledMass) {
    return refuse(absl::StrCat("below 1 needs score \"pooled_mass\", not \"", RuleName(plan.score),
                               "\": the mass of every layer is followed"));
  }
  if (plan.select == SelectRule::kTopRatioCompat) {
    return refuse("selection \"top_ratio_compat\" keeps what the reference code keeps");
  }
  if (plan.reorder != ReorderRule::kNone) {
    return refuse(absl::StrCat("below 1 follows blocks from layer to layer, which reorder \"",
                               RuleName(plan.reorder), "\" cuts anew in each"));
  }
  return absl::OkStatus();
}

// Rules that speak of the canvas's own order lose their meaning in another one.
absl::Status CheckReorder(const AttentionPlan& plan) {
  if (plan.reorder == ReorderRule::kNone) return absl::OkStatus();
  const char* reorder = RuleName(plan.reorder);
  if (!plan.sparse())
    return InvalidField("attention.reorder", reorder, "has no meaning when dense");
  if (plan.select == SelectRule::kTopRatio || plan.select == SelectRule::kTopRatioCompat) {
    return InvalidField("attention.reorder", reorder,
                        absl::StrCat("selection \"", RuleName(plan.select),
                                     "\" ranks prompt and generation blocks apart, which only the "
                                     "canvas's own order has; use \"top_k\" or \"mass\""));
  }
  if (plan.prior == PriorRule::kSinkWindow) {
    return InvalidField("attention.reorder", reorder,
                        "prior \"sink_window\" is a band in the canvas's own order");
  }
  return absl::OkStatus();
}

absl::Status CheckGrid(const AttentionPlan& plan, int32_t canvas_length) {
  const Extent3& grid = plan.grid;
  const std::string shown = absl::StrCat(grid.t, "x", grid.h, "x", grid.w);
  const bool needed = plan.reorder == ReorderRule::kFractal || plan.prior == PriorRule::kSta;
  if (grid == Extent3{}) {
    if (!needed) return absl::OkStatus();
    return InvalidField("attention.grid", "unset",
                        "is needed by reorder \"fractal\" and prior \"sta\"");
  }
  if (grid.t < 1 || grid.h < 1 || grid.w < 1 || grid.h % kTileEdge != 0 ||
      grid.w % kTileEdge != 0) {
    return InvalidField("attention.grid", shown, "t must be positive, h and w multiples of 8");
  }
  if (int64_t{grid.t} * grid.h * grid.w != canvas_length) {
    return InvalidField("attention.grid", shown,
                        absl::StrCat("must have the canvas's ", canvas_length, " tokens"));
  }
  if (needed && plan.block_tokens != kTileTokens) {
    return InvalidField("attention.block_tokens", plan.block_tokens,
                        "must be 64, the tokens of a tile, with reorder \"fractal\" or prior "
                        "\"sta\"");
  }
  return absl::OkStatus();
}

absl::Status CheckSta(const AttentionPlan& plan) {
  if (plan.prior != PriorRule::kSta) return absl::OkStatus();
  if (plan.reorder != ReorderRule::kFractal) {
    return InvalidField("attention.reorder", RuleName(plan.reorder),
                        "prior \"sta\" needs \"fractal\", which makes blocks tiles");
  }
  const Extent3& window = plan.sta_window;
  if (window.t >= 1 && window.h >= 1 && window.w >= 1) return absl::OkStatus();
  return InvalidField("attention.sta_window", absl::StrCat(window.t, "x", window.h, "x", window.w),
                      "must be at least one tile along each axis");
}

}  // namespace

absl::Status ValidateAttentionPlan(const AttentionPlan& plan, int32_t canvas_length) {
  RETURN_IF_ERROR(CheckNumbers(plan));
  RETURN_IF_ERROR(CheckComposition(plan));
  RETURN_IF_ERROR(CheckRelevance(plan));
  RETURN_IF_ERROR(CheckReorder(plan));
  RETURN_IF_ERROR(CheckGrid(plan, canvas_length));
  return CheckSta(plan);
}

}  // namespace sparsed
