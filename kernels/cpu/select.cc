// SPDX-License-Identifier: Apache-2.0
// A new rule is one function here, one line in kRules, and the same two in reference/select.cc.
#include "kernels/select.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "kernels/block_mask.h"
#include "kernels/cpu/cpu.h"

namespace sparsed::kernels::cpu {
namespace {

// A block's rank as one number: the smaller, the better. The upper half is its score turned so that
// integers compare as scores do, the lower half its index: ties go to the lower index, and NaN, as
// -inf, has a place in the order too.
using Rank = uint64_t;

Rank RankOf(float score, int64_t index) {
  score = std::isnan(score) ? -INFINITY : score + 0.0f;  // + 0: both zeros are one value
  const auto bits = std::bit_cast<uint32_t>(score);
  const uint32_t ascending = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(~ascending) << 32 | static_cast<uint64_t>(index);
}

int64_t IndexOf(Rank rank) { return static_cast<int64_t>(rank & 0xffffffffu); }

// What a block adds to a sum of mass.
double MassOf(float score) { return std::isnan(score) ? 0.0 : score; }

// One (head, query block).
struct Cell {
  int64_t key_blocks;
  const float* scores;             // [key_blocks]
  const float* generation_scores;  // [key_blocks - first_generation_block], compat only
  int32_t* words;                  // all zero before the rule runs
};

using Ranks = std::vector<Rank>;  // scratch

// Sets the bits of the `count` best of n scores; the first of them is block `begin`.
void KeepBest(const Cell& cell, const float* scores, int64_t begin, int64_t n, int64_t count,
              Ranks* ranks) {
  if (count == 0) return;
  ranks->clear();
  for (int64_t j = 0; j < n; ++j) ranks->push_back(RankOf(scores[j], begin + j));
  std::nth_element(ranks->begin(), ranks->begin() + (count - 1), ranks->end());
  for (int64_t i = 0; i < count; ++i) {
    SetMaskBit(cell.words, IndexOf((*ranks)[static_cast<size_t>(i)]));
  }
}

void ClearMaskBit(int32_t* row_words, int64_t key_block) {
  row_words[key_block / 32] = static_cast<int32_t>(
      static_cast<uint32_t>(row_words[key_block / 32]) & ~(1u << (key_block % 32)));
}

// ceil(budget * n), at least 1 where there is anything.
int64_t KeptCount(double budget, int64_t n) {
  const auto count = static_cast<int64_t>(std::ceil(budget * static_cast<double>(n)));
  return std::min(std::max<int64_t>(count, 1), n);
}

void SelectTopRatio(const Selection& selection, const Cell& cell, Ranks* ranks) {
  const int64_t prompt = selection.first_generation_block;
  const int64_t generation = cell.key_blocks - prompt;
  KeepBest(cell, cell.scores, 0, prompt, KeptCount(selection.budget, prompt), ranks);
  KeepBest(cell, cell.scores + prompt, prompt, generation, KeptCount(selection.budget, generation),
           ranks);
}

void SelectTopRatioCompat(const Selection& selection, const Cell& cell, Ranks* ranks) {
  // The reference would ask topk for more than there are at budget 1; all of them is what it means.
  const auto count = [&](int64_t n) {
    return std::min(n, static_cast<int64_t>(static_cast<double>(n) * selection.budget) + 1);
  };
  const int64_t prompt = selection.first_generation_block;
  KeepBest(cell, cell.scores, 0, cell.key_blocks, count(cell.key_blocks), ranks);
  for (int64_t j = prompt; j < cell.key_blocks; ++j) ClearMaskBit(cell.words, j);
  const int64_t generation = cell.key_blocks - prompt;
  KeepBest(cell, cell.generation_scores, prompt, generation, count(generation), ranks);
}

void SelectTopK(const Selection& selection, const Cell& cell, Ranks* ranks) {
  KeepBest(cell, cell.scores, 0, cell.key_blocks, KeptCount(selection.budget, cell.key_blocks),
           ranks);
}

void SelectMass(const Selection& selection, const Cell& cell, Ranks* ranks) {
  ranks->clear();
  for (int64_t j = 0; j < cell.key_blocks; ++j) ranks->push_back(RankOf(cell.scores[j], j));
  std::sort(ranks->begin(), ranks->end());
  // From the worst block up, until what was passed over would reach 1 - budget.
  const double droppable = 1.0 - selection.budget;
  size_t kept = ranks->size();
  double dropped = 0;
  while (kept > 1 && droppable > 0) {
    dropped += MassOf(cell.scores[IndexOf((*ranks)[kept - 1])]);
    if (dropped >= droppable) break;
    --kept;
  }
  for (size_t i = 0; i < kept; ++i) SetMaskBit(cell.words, IndexOf((*ranks)[i]));
}

struct Rule {
  std::string_view name;
  void (*select)(const Selection& selection, const Cell& cell, Ranks* ranks);
};
constexpr std::array kRules = {
    Rule{kTopRatio, SelectTopRatio},
    Rule{kTopRatioCompat, SelectTopRatioCompat},
    Rule{kTopK, SelectTopK},
    Rule{kMass, SelectMass},
};

// Adds the best dropped blocks until the kept ones sum to min_mass.
void KeepMass(double min_mass, const Cell& cell, Ranks* ranks) {
  double kept = 0;
  ranks->clear();
  for (int64_t j = 0; j < cell.key_blocks; ++j) {
    if (MaskBit(cell.words, j)) {
      kept += MassOf(cell.scores[j]);
    } else {
      ranks->push_back(RankOf(cell.scores[j], j));
    }
  }
  if (kept >= min_mass) return;
  std::sort(ranks->begin(), ranks->end());
  for (const Rank rank : *ranks) {
    if (kept >= min_mass) return;
    SetMaskBit(cell.words, IndexOf(rank));
    kept += MassOf(cell.scores[IndexOf(rank)]);
  }
}

}  // namespace

void SelectBlocks(const Tensor& mask_words, const Tensor& scores, const Tensor& generation_scores,
                  const Selection& selection) {
  const auto* rule = std::find_if(kRules.begin(), kRules.end(), [&](const Rule& candidate) {
    return candidate.name == selection.rule;
  });
  const int64_t key_blocks = scores.size(2);
  const int64_t generation_blocks = key_blocks - selection.first_generation_block;
  const float* all = scores.const_data_ptr<float>();
  const float* generation =
      generation_scores.defined() ? generation_scores.const_data_ptr<float>() : nullptr;
  const int64_t words = MaskRowWords(key_blocks);
  int32_t* mask = mask_words.mutable_data_ptr<int32_t>();
  at::parallel_for(0, scores.size(0) * scores.size(1), 16, [&](int64_t begin, int64_t end) {
    Ranks ranks;
    for (int64_t i = begin; i < end; ++i) {
      const Cell cell{key_blocks, all + i * key_blocks,
                      generation == nullptr ? nullptr : generation + i * generation_blocks,
                      mask + i * words};
      std::fill_n(cell.words, words, 0);
      rule->select(selection, cell, &ranks);
      if (selection.min_mass > 0) KeepMass(selection.min_mass, cell, &ranks);
    }
  });
}

}  // namespace sparsed::kernels::cpu

namespace sparsed::kernels {

std::vector<std::string_view> SelectionRuleNames() {
  std::vector<std::string_view> names;
  for (const cpu::Rule& rule : cpu::kRules) names.push_back(rule.name);
  return names;
}

}  // namespace sparsed::kernels
