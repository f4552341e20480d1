// SPDX-License-Identifier: Apache-2.0
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "engine/attention/plan.h"
#include "engine/base/invalid_field.h"

namespace sparsed {
namespace {

// SparseD (arXiv 2509.24014). ratio, skip and block_tokens: the published guide's three scenarios.
AttentionPlan SparseD(const char* preset, double ratio, double skip, int32_t block_tokens) {
  return {.preset = preset,
          .score = ScoreRule::kPooledMass,
          .select = SelectRule::kTopRatio,
          .ratio = ratio,
          .skip = skip,
          .block_tokens = block_tokens};
}

// Ours: SparseD's masks where the answer depends on them (kernels/relevance.h; docs/fidelity.md has
// the numbers).
AttentionPlan Relevance() {
  AttentionPlan plan = SparseD("relevance", 0.1, 0.2, 32);
  plan.relevant_share = 0.2;
  return plan;
}

AttentionPlan SparseDCompat() {
  AttentionPlan plan = SparseD("sparsed_compat", 0.3, 0.2, 128);
  plan.select = SelectRule::kTopRatioCompat;
  return plan;
}

// BA-Att (arXiv 2605.19726) at half of the blocks, where its paper reports full quality.
AttentionPlan BaAtt() {
  return {.preset = "ba_att",
          .score = ScoreRule::kMeanCov,
          .select = SelectRule::kTopK,
          .reorder = ReorderRule::kNormQK,
          .ratio = 0.5,
          .skip = 0,
          .refresh_every = 1,
          .block_tokens = 128};
}

// NABLA (Wan2.1-NABLA) at its reference's default threshold. Tiles are 8x8 tokens of a frame.
AttentionPlan Nabla() {
  return {.preset = "nabla",
          .score = ScoreRule::kMean,
          .select = SelectRule::kMass,
          .mass = 0.7,
          .skip = 0,
          .refresh_every = 1,
          .block_tokens = 64};
}

// The reference's model trained for NABLA(0.6) + STA(11, 3, 3).
AttentionPlan NablaSta() {
  AttentionPlan plan = Nabla();
  plan.preset = "nabla_sta";
  plan.reorder = ReorderRule::kFractal;
  plan.prior = PriorRule::kSta;
  plan.mass = 0.6;
  plan.sta_window = {11, 3, 3};
  return plan;
}

AttentionPlan Window() {
  return {.preset = "window",
          .prior = PriorRule::kSinkWindow,
          .sink_blocks = 1,
          .window_blocks = 4,
          .skip = 0,
          .block_tokens = 128};
}

// Adding a preset is one line here.
const AttentionPreset kPresets[] = {
    {{.preset = "dense"}, "Full attention in every step."},
    {SparseD("sparsed", 0.3, 0.2, 128),
     "SparseD as its paper states it, for long contexts: head-specific block masks from pooled "
     "attention mass, built once."},
    {SparseD("sparsed_chat", 0.35, 0.25, 64), "SparseD for contexts of 4k to 8k tokens."},
    {SparseD("sparsed_code", 0.25, 0.3, 256), "SparseD for code, 8k to 16k tokens."},
    {SparseDCompat(), "SparseD as its reference code counts, scales and schedules."},
    {Relevance(),
     "sparsed's own: SparseD's masks for the fifth of the prompt that the answer depends on, one "
     "block for the rest."},
    {BaAtt(),
     "BA-Att: blocks of norm-sorted tokens, scored by their means and variances in every step."},
    {Nabla(),
     "NABLA: the fewest blocks that hold 0.7 of the pooled attention, chosen in every step."},
    {NablaSta(), "NABLA with sliding tiles, for a canvas that is a video (attention.grid)."},
    {Window(), "The canvas's first block and a band around the diagonal; looks at no scores."},
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

}  // namespace sparsed
