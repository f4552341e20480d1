// SPDX-License-Identifier: Apache-2.0
#include "engine/attention/mask_builder.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "kernels/attention.h"
#include "kernels/relevance.h"
#include "kernels/score.h"

namespace sparsed {
namespace {

// Enough for a mean within a few thousandths per layer, at under 1 % of a dense attention of 4096
// tokens.
constexpr int64_t kSampledQueries = 32;

at::Tensor StatisticsLogits(const MaskInput& input, int32_t block_tokens, bool covariance) {
  return kernels::BlockLogits(kernels::ComputeBlockStatistics(input.q, block_tokens),
                              kernels::ComputeBlockStatistics(input.k, block_tokens),
                              input.q.size(0), block_tokens, covariance);
}

// [heads, query_blocks, key_blocks]; logits or mass, as the rule has it.
at::Tensor Score(const AttentionPlan& plan, const MaskInput& input) {
  switch (plan.score) {
    case ScoreRule::kPooledMass:
      return input.mass;
    case ScoreRule::kMean:
      return StatisticsLogits(input, plan.block_tokens, /*covariance=*/false);
    case ScoreRule::kMeanCov:
      return StatisticsLogits(input, plan.block_tokens, /*covariance=*/true);
    case ScoreRule::kNone:
      break;
  }
  return {};
}

void Select(const AttentionSchedule& schedule, const MaskInput& input, double compat_score_scale,
            const at::Tensor& words) {
  const AttentionPlan& plan = schedule.plan;
  kernels::Selection selection{.rule = RuleName(plan.select),
                               .budget = plan.ratio,
                               .first_generation_block = schedule.first_generation_block,
                               .min_mass = plan.min_retained_mass};
  if (plan.select == SelectRule::kTopRatioCompat) {
    const auto score = [&](int64_t first_key_block) {
      return kernels::PooledMass(input.q, input.k, plan.block_tokens, compat_score_scale,
                                 first_key_block);
    };
    kernels::SelectBlocks(words, score(0), score(schedule.first_generation_block), selection);
    return;
  }
  if (plan.select == SelectRule::kMass) selection.budget = plan.mass;
  at::Tensor scores = Score(plan, input);
  const bool needs_mass = plan.select == SelectRule::kMass || selection.min_mass > 0;
  if (needs_mass && plan.score != ScoreRule::kPooledMass) scores = at::softmax(scores, -1);
  kernels::SelectBlocks(words, scores, at::Tensor(), selection);
  if (input.selecting.defined()) kernels::KeepBestBlock(words, scores, input.selecting);
}

kernels::MaskStatistics SampledStatistics(const AttentionPlan& plan, const MaskInput& input,
                                          const at::Tensor& words) {
  const int64_t tokens = input.q.size(0);
  const int64_t count = std::min(tokens, kSampledQueries);
  const at::Tensor spread =
      at::arange(count, at::dtype(at::kLong).device(input.q.device())) * tokens;
  const at::Tensor queries = at::div(spread, count, "floor");
  return {kernels::CountKeptBlocks(words, input.q.size(1)),
          kernels::SampleRetainedMass(input.q, input.k, words, queries, plan.block_tokens)};
}

}  // namespace

kernels::MaskStatistics BuildMask(const AttentionSchedule& schedule,
                                  const AttentionPattern& pattern, const MaskInput& input,
                                  double compat_score_scale, const at::Tensor& words) {
  const AttentionPlan& plan = schedule.plan;
  if (plan.select == SelectRule::kNone) {
    words.zero_();
  } else {
    Select(schedule, input, compat_score_scale, words);
  }
  if (pattern.prior_words.defined()) {
    words.view({-1, pattern.prior_words.numel()}).bitwise_or_(pattern.prior_words);
  }
  if (!input.mass.defined()) return SampledStatistics(plan, input, words);
  return kernels::ComputeMaskStatistics(words, input.mass, schedule.length, plan.block_tokens);
}

}  // namespace sparsed
