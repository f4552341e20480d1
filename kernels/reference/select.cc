// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "kernels/reference/reference.h"

namespace sparsed::kernels::reference {
namespace {

// Keeps the `count` best of the last dimension; a stable sort gives ties to the lower index.
at::Tensor KeepBest(const at::Tensor& scores, int64_t count) {
  const at::Tensor order =
      std::get<1>(scores.sort(/*stable=*/true, /*dim=*/-1, /*descending=*/true));
  at::Tensor keep = at::zeros_like(scores, at::kBool);
  return keep.scatter_(-1, order.narrow(-1, 0, count), true);
}

}  // namespace

at::Tensor SelectBlocks(const at::Tensor& scores, const at::Tensor& generation_scores,
                        std::string_view rule, double ratio, int64_t first_generation_block) {
  const int64_t blocks = scores.size(2);
  const int64_t prompt = first_generation_block;
  const int64_t generation = blocks - prompt;
  at::Tensor keep = at::zeros_like(scores, at::kBool);
  if (rule == kTopRatioCompat) {
    const auto count = [&](int64_t n) {
      return std::min(n, static_cast<int64_t>(static_cast<double>(n) * ratio) + 1);
    };
    keep.narrow(2, 0, prompt).copy_(KeepBest(scores, count(blocks)).narrow(2, 0, prompt));
    keep.narrow(2, prompt, generation).copy_(KeepBest(generation_scores, count(generation)));
    return keep;
  }
  const auto keep_part = [&](int64_t begin, int64_t n) {
    if (n == 0) return;
    const int64_t count =
        std::clamp<int64_t>(static_cast<int64_t>(std::ceil(ratio * static_cast<double>(n))), 1, n);
    keep.narrow(2, begin, n).copy_(KeepBest(scores.narrow(2, begin, n), count));
  };
  keep_part(0, prompt);
  keep_part(prompt, generation);
  return keep;
}

MaskStatistics ComputeMaskStatistics(const at::Tensor& mask, const at::Tensor& mass, int64_t tokens,
                                     int64_t block_tokens) {
  const at::Tensor starts = at::arange(mask.size(1), at::kDouble) * double(block_tokens);
  const at::Tensor queries = (double(tokens) - starts).clamp_max(double(block_tokens));
  const at::Tensor kept_mass = (mass.to(at::kDouble) * mask).sum(2);
  return {mask.sum({1, 2}), (kept_mass * queries).sum(1) / double(tokens)};
}

}  // namespace sparsed::kernels::reference
