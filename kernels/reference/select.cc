// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>

#include <ATen/ATen.h>

#include "kernels/block_mask.h"
#include "kernels/reference/reference.h"

namespace sparsed::kernels::reference {
namespace {

// NaN ranks with -inf, below every number.
at::Tensor Ranked(const at::Tensor& scores) {
  return scores.masked_fill(scores.isnan(), -INFINITY);
}

// What blocks add to sums of mass.
at::Tensor Masses(const at::Tensor& scores) {
  return scores.to(at::kDouble).masked_fill(scores.isnan(), 0.0);
}

// Block indices, the best first; a stable sort gives ties to the lower index.
at::Tensor BestFirst(const at::Tensor& scores) {
  return std::get<1>(Ranked(scores).sort(/*stable=*/true, /*dim=*/-1, /*descending=*/true));
}

at::Tensor KeepBest(const at::Tensor& scores, int64_t count) {
  at::Tensor keep = at::zeros_like(scores, at::kBool);
  return keep.scatter_(-1, BestFirst(scores).narrow(-1, 0, count), true);
}

// The ceil(budget * n) best of the n blocks from `begin` on, at least 1 where there is anything.
at::Tensor KeepShare(const at::Tensor& scores, double budget) {
  const int64_t n = scores.size(-1);
  const auto count = static_cast<int64_t>(std::ceil(budget * static_cast<double>(n)));
  return KeepBest(scores, std::min(std::max<int64_t>(count, 1), n));
}

at::Tensor TopRatio(const at::Tensor& scores, const at::Tensor&, const Selection& selection) {
  const int64_t prompt = selection.first_generation_block;
  return at::cat({KeepShare(scores.narrow(2, 0, prompt), selection.budget),
                  KeepShare(scores.narrow(2, prompt, scores.size(2) - prompt), selection.budget)},
                 2);
}

at::Tensor TopRatioCompat(const at::Tensor& scores, const at::Tensor& generation_scores,
                          const Selection& selection) {
  const auto count = [&](int64_t n) {
    return std::min(n, static_cast<int64_t>(static_cast<double>(n) * selection.budget) + 1);
  };
  const at::Tensor all = KeepBest(scores, count(scores.size(2)));
  return at::cat({all.narrow(2, 0, selection.first_generation_block),
                  KeepBest(generation_scores, count(generation_scores.size(2)))},
                 2);
}

at::Tensor TopK(const at::Tensor& scores, const at::Tensor&, const Selection& selection) {
  return KeepShare(scores, selection.budget);
}

at::Tensor Mass(const at::Tensor& scores, const at::Tensor&, const Selection& selection) {
  if (selection.budget >= 1) return at::ones_like(scores, at::kBool);
  const at::Tensor order = BestFirst(scores);
  // From the worst block up: c of a block is its own mass and that of all worse ones.
  const at::Tensor c = Masses(scores).gather(-1, order).flip(-1).cumsum(-1).flip(-1);
  at::Tensor keep = c.ge(1.0 - selection.budget);
  keep.select(-1, 0).fill_(true);
  return at::zeros_like(keep).scatter_(-1, order, keep);
}

struct Rule {
  std::string_view name;
  at::Tensor (*select)(const at::Tensor& scores, const at::Tensor& generation_scores,
                       const Selection& selection);
};
constexpr std::array kRules = {
    Rule{kTopRatio, TopRatio},
    Rule{kTopRatioCompat, TopRatioCompat},
    Rule{kTopK, TopK},
    Rule{kMass, Mass},
};

// The best dropped blocks that are needed for the kept ones to sum to min_mass.
at::Tensor Missing(const at::Tensor& keep, const at::Tensor& scores, double min_mass) {
  const at::Tensor masses = Masses(scores);
  const at::Tensor kept = masses.masked_fill(keep.logical_not(), 0.0).sum(-1, /*keepdim=*/true);
  const at::Tensor order = BestFirst(scores.masked_fill(keep, -INFINITY));
  const at::Tensor dropped = masses.masked_fill(keep, 0.0).gather(-1, order);
  const at::Tensor before = kept + dropped.cumsum(-1) - dropped;
  return at::zeros_like(keep).scatter_(-1, order, before.lt(min_mass));
}

}  // namespace

at::Tensor SelectBlocks(const at::Tensor& scores, const at::Tensor& generation_scores,
                        const Selection& selection) {
  const auto* rule = std::find_if(kRules.begin(), kRules.end(), [&](const Rule& candidate) {
    return candidate.name == selection.rule;
  });
  const at::Tensor keep = rule->select(scores, generation_scores, selection);
  if (selection.min_mass == 0) return keep;
  return keep.logical_or(Missing(keep, scores, selection.min_mass));
}

MaskStatistics ComputeMaskStatistics(const at::Tensor& mask, const at::Tensor& mass, int64_t tokens,
                                     int64_t block_tokens) {
  const at::Tensor kept_mass = (mass.to(at::kDouble) * mask).sum(2);
  const at::Tensor queries = TokensPerBlock(kept_mass, tokens, block_tokens);
  return {mask.sum({1, 2}), (kept_mass * queries).sum(1) / double(tokens)};
}

at::Tensor SampleRetainedMass(const at::Tensor& q, const at::Tensor& k, const at::Tensor& mask,
                              const at::Tensor& queries, int64_t block_tokens) {
  const at::Tensor sampled = Wide(q.index_select(0, queries)).transpose(0, 1);
  const at::Tensor keys = RepeatKvHeads(Wide(k), q.size(1), 1).transpose(0, 1);
  const at::Tensor weights =
      at::softmax(at::matmul(sampled, keys.transpose(1, 2)) / std::sqrt(double(q.size(2))), -1);
  const at::Tensor mass = SumBlocks(weights.to(at::kDouble), block_tokens, 2);
  const at::Tensor kept = mask.index_select(1, at::floor_divide(queries, block_tokens));
  return (mass * kept).sum(2).mean(1);
}

}  // namespace sparsed::kernels::reference
