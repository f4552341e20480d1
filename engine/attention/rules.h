// SPDX-License-Identifier: Apache-2.0
// The rules an AttentionPlan is composed of, and their names in requests and answers.
// A new rule is one enum value here, one line in rules.cc, and the function it names: a score in
// mask_builder.cc, a selection in kernels/.../select.cc, a reordering or prior in kernels/.
#pragma once

#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace sparsed {

// How much a key block matters to a query block.
enum class ScoreRule {
  kNone,        // no scores: the mask is the prior alone, or there is none
  kPooledMass,  // softmax mass of the key block, averaged over the query block (SparseD, Eq. 3)
  kMean,        // mean query . mean key / sqrt(head_dim) (NABLA)
  kMeanCov,     // the same plus the second-order term of the block's variances (BA-Att, Eq. 14)
};

// Which key blocks a query block keeps. Ties go to the lower index. The isolated rules rank prompt
// and generation key blocks apart; the generation part starts at block
// last = min(ceil(prompt / block_tokens), blocks - 1).
enum class SelectRule {
  kNone,            // nothing: the prior alone
  kTopRatio,        // isolated: ceil(ratio * n) of the n blocks of either part (SparseD, Eq. 5-6)
  kTopRatioCompat,  // as the SparseD reference code counts, scales and renormalises
  kTopK,            // ceil(ratio * n) of all n blocks (BA-Att, Eq. 15)
  kMass,            // the fewest blocks that hold `mass` of the row's softmax mass (NABLA)
};

// The order in which tokens are cut into blocks. Outputs return in the canvas's order.
enum class ReorderRule {
  kNone,
  kNormK,    // keys by ascending L2 norm, inside windows (BA-Att, Eq. 10)
  kNormQK,   // queries and keys, each by its own norm
  kFractal,  // 8x8 tiles of each frame of a video (NABLA)
};

// Blocks that are kept whatever the scores say.
enum class PriorRule {
  kNone,
  kSinkWindow,  // the first blocks of the canvas and a band around the diagonal
  kSta,         // sliding tile attention: a window of tiles around the own tile of a video
};

const char* RuleName(ScoreRule rule);    // "none", "pooled_mass", "mean", "mean_cov"
const char* RuleName(SelectRule rule);   // "none", "top_ratio", "top_ratio_compat", "top_k", "mass"
const char* RuleName(ReorderRule rule);  // "none", "norm_k", "norm_qk", "fractal"
const char* RuleName(PriorRule rule);    // "none", "sink_window", "sta"

// INVALID_ARGUMENT on "attention.score" and so on names the value and the known names.
absl::StatusOr<ScoreRule> FindScoreRule(std::string_view name);
absl::StatusOr<SelectRule> FindSelectRule(std::string_view name);
absl::StatusOr<ReorderRule> FindReorderRule(std::string_view name);
absl::StatusOr<PriorRule> FindPriorRule(std::string_view name);

}  // namespace sparsed
