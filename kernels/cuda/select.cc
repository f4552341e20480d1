// SPDX-License-Identifier: Apache-2.0
#include "kernels/select.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <ATen/ATen.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/select_launch.h"
#include "kernels/cuda/tensor_args.h"

namespace sparsed::kernels::cuda {
namespace {

struct Rule {
  std::string_view name;
  SelectionRule rule;
};
constexpr std::array kRules = {
    Rule{kTopRatio, SelectionRule::kTopRatio},
    Rule{kTopRatioCompat, SelectionRule::kTopRatioCompat},
    Rule{kTopK, SelectionRule::kTopK},
    Rule{kMass, SelectionRule::kMass},
};

// ceil(budget * n), at least 1 where there is anything.
int64_t Share(double budget, int64_t n) {
  const auto count = static_cast<int64_t>(std::ceil(budget * static_cast<double>(n)));
  return std::min(std::max<int64_t>(count, 1), n);
}

int64_t CompatShare(double budget, int64_t n) {
  return std::min(n, static_cast<int64_t>(static_cast<double>(n) * budget) + 1);
}

// Sets what is known before any score is: how many blocks the rule keeps.
void SetCounts(const Selection& selection, SelectParams* params) {
  const int64_t prompt = params->first_generation;
  const int64_t all = params->key_blocks;
  const double budget = selection.budget;
  if (params->rule == SelectionRule::kTopRatio) {
    params->count = static_cast<int>(Share(budget, prompt));
    params->generation_count = static_cast<int>(Share(budget, all - prompt));
  } else if (params->rule == SelectionRule::kTopRatioCompat) {
    params->count = static_cast<int>(CompatShare(budget, all));
    params->generation_count = static_cast<int>(CompatShare(budget, all - prompt));
  } else {
    params->count = static_cast<int>(Share(budget, all));
  }
}

uint32_t* Words(const Tensor& mask_words) {
  return reinterpret_cast<uint32_t*>(mask_words.mutable_data_ptr<int32_t>());
}

}  // namespace

void SelectBlocks(const Tensor& mask_words, const Tensor& scores, const Tensor& generation_scores,
                  const Selection& selection) {
  TORCH_CHECK_VALUE(scores.size(2) <= INT32_MAX, "sparsed: scores has ", scores.size(2),
                    " key blocks, CUDA takes up to ", INT32_MAX);
  const auto* rule = std::find_if(kRules.begin(), kRules.end(), [&](const Rule& candidate) {
    return candidate.name == selection.rule;
  });
  SelectParams params{};
  params.scores = scores.const_data_ptr<float>();
  if (generation_scores.defined()) {
    params.generation_scores = generation_scores.const_data_ptr<float>();
  }
  params.words = Words(mask_words);
  params.rows = scores.size(0) * scores.size(1);
  params.key_blocks = static_cast<int>(scores.size(2));
  params.first_generation = static_cast<int>(selection.first_generation_block);
  params.rule = rule->rule;
  SetCounts(selection, &params);
  params.droppable = 1.0 - selection.budget;
  params.min_mass = selection.min_mass;
  const DeviceStream stream(scores);
  LaunchSelectBlocks(params, stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

MaskStatistics ComputeMaskStatistics(const Tensor& mask_words, const Tensor& mass, int64_t tokens,
                                     int64_t block_tokens) {
  const int64_t heads = mass.size(0);
  const int64_t blocks = mass.size(1);
  const DeviceStream stream(mass);
  const Tensor row_kept = at::empty({heads * blocks}, mass.options().dtype(at::kInt));
  const Tensor row_mass = at::empty({heads * blocks}, mass.options().dtype(at::kDouble));
  MaskStatistics result{at::empty({heads}, mass.options().dtype(at::kLong)),
                        at::empty({heads}, mass.options().dtype(at::kDouble))};
  if (heads == 0) return result;
  LaunchMaskStatistics({.words = Words(mask_words),
                        .mass = mass.const_data_ptr<float>(),
                        .heads = heads,
                        .blocks = blocks,
                        .tokens = tokens,
                        .block_tokens = block_tokens,
                        .row_kept = row_kept.mutable_data_ptr<int32_t>(),
                        .row_mass = row_mass.mutable_data_ptr<double>(),
                        .kept = result.kept.mutable_data_ptr<int64_t>(),
                        .retained = result.retained.mutable_data_ptr<double>()},
                       stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return result;
}

Tensor CountKeptBlocks(const Tensor& mask_words, int64_t heads) {
  const DeviceStream stream(mask_words);
  Tensor kept = at::empty({heads}, mask_words.options().dtype(at::kLong));
  LaunchCountKeptBlocks(Words(mask_words), heads, mask_words.numel() / heads,
                        kept.mutable_data_ptr<int64_t>(), stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return kept;
}

}  // namespace sparsed::kernels::cuda
