// SPDX-License-Identifier: Apache-2.0
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "engine/attention/plan.h"
#include "engine/base/invalid_field.h"

namespace sparsed {
namespace {

// Adding a preset is one line here. sparsed: the paper's setting for long contexts (SparseD,
// section 4).
const AttentionPreset kPresets[] = {
    {{.preset = "dense"}, "Full attention in every step."},
    {{.preset = "sparsed",
      .score = ScoreRule::kPooledMass,
      .select = SelectRule::kTopRatio,
      .ratio = 0.3,
      .skip = 0.2},
     "SparseD as its paper states it: head-specific block masks from pooled attention mass, built "
     "once."},
    {{.preset = "sparsed_compat",
      .score = ScoreRule::kPooledMass,
      .select = SelectRule::kTopRatioCompat,
      .ratio = 0.3,
      .skip = 0.2},
     "SparseD as its reference code counts, scales and schedules."},
};

}  // namespace

absl::Span<const AttentionPreset> AttentionPresets() { return kPresets; }

absl::StatusOr<AttentionPlan> FindAttentionPreset(const std::string& name) {
  for (const AttentionPreset& preset : kPresets) {
    if (preset.plan.preset == name) return preset.plan;
  }
  const std::string known =
      absl::StrJoin(kPresets, ", ", [](std::string* out, const AttentionPreset& preset) {
        absl::StrAppend(out, preset.plan.preset);
      });
  return InvalidField("attention.preset", absl::StrCat("\"", name, "\""),
                      absl::StrCat("must be one of ", known));
}

absl::Status ValidateAttentionPlan(const AttentionPlan& plan) {
  // Written so that NaN fails each comparison.
  if (!(plan.ratio > 0 && plan.ratio <= 1)) {
    return InvalidField("attention.ratio", plan.ratio, "must be in (0, 1]");
  }
  if (!(plan.skip >= 0 && plan.skip <= 1)) {
    return InvalidField("attention.skip", plan.skip, "must be in [0, 1]");
  }
  if (plan.block_tokens != 32 && plan.block_tokens != 64 && plan.block_tokens != 128) {
    return InvalidField("attention.block_tokens", plan.block_tokens, "must be 32, 64 or 128");
  }
  return absl::OkStatus();
}

}  // namespace sparsed
