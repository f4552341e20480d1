// SPDX-License-Identifier: Apache-2.0
#include "kernels/select.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "kernels/block_mask.h"
#include "kernels/cpu/cpu.h"

namespace sparsed::kernels::cpu {
namespace {

// Indices of the `count` best of n scores; ties go to the lower index.
void BestIndices(const float* scores, int64_t n, int64_t count, std::vector<int64_t>* order) {
  order->resize(static_cast<size_t>(n));
  std::iota(order->begin(), order->end(), 0);
  std::nth_element(order->begin(), order->begin() + (count - 1), order->end(),
                   [scores](int64_t a, int64_t b) {
                     return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
                   });
  order->resize(static_cast<size_t>(count));
}

// One (head, query block): its scores and its mask words.
struct Cell {
  const float* scores;             // [key_blocks]
  const float* generation_scores;  // [key_blocks - first_generation_block], compat only
  int32_t* words;
};

struct Rule {
  int64_t key_blocks;
  int64_t first_generation_block;
  double ratio;
  int64_t generation_blocks() const { return key_blocks - first_generation_block; }
};

void SelectTopRatio(const Rule& rule, const Cell& cell, std::vector<int64_t>* order) {
  const auto keep_part = [&](int64_t begin, int64_t n) {
    if (n == 0) return;
    const int64_t count = std::clamp<int64_t>(
        static_cast<int64_t>(std::ceil(rule.ratio * static_cast<double>(n))), 1, n);
    BestIndices(cell.scores + begin, n, count, order);
    for (const int64_t j : *order) SetMaskBit(cell.words, begin + j);
  };
  keep_part(0, rule.first_generation_block);
  keep_part(rule.first_generation_block, rule.generation_blocks());
}

void SelectTopRatioCompat(const Rule& rule, const Cell& cell, std::vector<int64_t>* order) {
  // The reference would ask topk for more than there are at ratio 1; all of them is what it means.
  const auto count = [&](int64_t n) {
    return std::min(n, static_cast<int64_t>(static_cast<double>(n) * rule.ratio) + 1);
  };
  BestIndices(cell.scores, rule.key_blocks, count(rule.key_blocks), order);
  for (const int64_t j : *order) {
    if (j < rule.first_generation_block) SetMaskBit(cell.words, j);
  }
  BestIndices(cell.generation_scores, rule.generation_blocks(), count(rule.generation_blocks()),
              order);
  for (const int64_t j : *order) SetMaskBit(cell.words, rule.first_generation_block + j);
}

}  // namespace

void SelectBlocks(const Tensor& mask_words, const Tensor& scores, const Tensor& generation_scores,
                  std::string_view rule_name, double ratio, int64_t first_generation_block) {
  const Rule rule{scores.size(2), first_generation_block, ratio};
  const bool compat = rule_name == kTopRatioCompat;
  const float* all = scores.const_data_ptr<float>();
  const float* generation = compat ? generation_scores.const_data_ptr<float>() : nullptr;
  const int64_t words = MaskRowWords(rule.key_blocks);
  int32_t* mask = mask_words.mutable_data_ptr<int32_t>();
  at::parallel_for(0, scores.size(0) * scores.size(1), 16, [&](int64_t begin, int64_t end) {
    std::vector<int64_t> order;
    for (int64_t i = begin; i < end; ++i) {
      Cell cell{all + i * rule.key_blocks, nullptr, mask + i * words};
      std::fill_n(cell.words, words, 0);
      if (compat) {
        cell.generation_scores = generation + i * rule.generation_blocks();
        SelectTopRatioCompat(rule, cell, &order);
      } else {
        SelectTopRatio(rule, cell, &order);
      }
    }
  });
}

MaskStatistics ComputeMaskStatistics(const Tensor& mask_words, const Tensor& mass, int64_t tokens,
                                     int64_t block_tokens) {
  const int64_t heads = mass.size(0);
  const int64_t query_blocks = mass.size(1);
  const int64_t key_blocks = mass.size(2);
  Tensor kept = at::zeros({heads}, at::kLong);
  Tensor retained = at::zeros({heads}, at::kDouble);
  auto kept_of = kept.accessor<int64_t, 1>();
  auto retained_of = retained.accessor<double, 1>();
  const float* cells = mass.const_data_ptr<float>();
  const int32_t* words = mask_words.const_data_ptr<int32_t>();
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t i = 0; i < query_blocks; ++i) {
      const int64_t cell = head * query_blocks + i;
      const int64_t queries = std::min(block_tokens, tokens - i * block_tokens);
      double row_mass = 0;
      for (int64_t j = 0; j < key_blocks; ++j) {
        if (!MaskBit(words + cell * MaskRowWords(key_blocks), j)) continue;
        ++kept_of[head];
        row_mass += cells[cell * key_blocks + j];
      }
      retained_of[head] += row_mass * static_cast<double>(queries) / static_cast<double>(tokens);
    }
  }
  return {kept, retained};
}

}  // namespace sparsed::kernels::cpu
