// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "kernels/block_mask.h"
#include "kernels/cpu/cpu.h"
#include "kernels/select.h"

namespace sparsed::kernels::cpu {
namespace {

// Bits of a word that stand for key blocks; garbage beyond the last one must not be followed.
uint32_t KeptBits(const int32_t* row_words, int64_t word, int64_t key_blocks) {
  const int64_t used = key_blocks - word * 32;
  const uint32_t bits = static_cast<uint32_t>(row_words[word]);
  return used >= 32 ? bits : bits & ((1u << used) - 1u);
}

// mask_words -> fp32 [heads, query_blocks, key_blocks] of 0 and 1, for the query blocks in `rows`.
Tensor MaskRows(const Tensor& mask_words, int64_t heads, int64_t blocks, const Tensor& rows) {
  const int64_t words = MaskRowWords(blocks);
  const int32_t* mask = mask_words.const_data_ptr<int32_t>();
  const auto row_of = rows.accessor<int64_t, 1>();
  Tensor out = at::zeros({heads, rows.size(0), blocks});
  auto cells = out.accessor<float, 3>();
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t i = 0; i < rows.size(0); ++i) {
      const int32_t* row_words = mask + (head * blocks + row_of[i]) * words;
      for (int64_t j = 0; j < blocks; ++j) cells[head][i][j] = MaskBit(row_words, j) ? 1.0f : 0.0f;
    }
  }
  return out;
}

// Softmax of queries [rows, head_dim] over keys [tokens, head_dim], summed per block of keys ->
// fp32 [rows, blocks].
Tensor BlockMass(const Tensor& queries, const Tensor& keys, int64_t block_tokens) {
  const int64_t tokens = keys.size(0);
  const int64_t blocks = BlockCount(tokens, block_tokens);
  const double scale = 1.0 / std::sqrt(static_cast<double>(keys.size(1)));
  const Tensor weights = at::softmax(at::matmul(queries, keys.t()).mul_(scale), -1);
  return at::constant_pad_nd(weights, {0, blocks * block_tokens - tokens})
      .view({queries.size(0), blocks, block_tokens})
      .sum(-1);
}

}  // namespace

MaskStatistics ComputeMaskStatistics(const Tensor& mask_words, const Tensor& mass, int64_t tokens,
                                     int64_t block_tokens) {
  const int64_t heads = mass.size(0);
  const int64_t query_blocks = mass.size(1);
  const int64_t key_blocks = mass.size(2);
  const int64_t words = MaskRowWords(key_blocks);
  const float* cells = mass.const_data_ptr<float>();
  const int32_t* mask = mask_words.const_data_ptr<int32_t>();
  // Per query block first: the sum over them is in one order whatever the number of threads.
  std::vector<int64_t> kept(static_cast<size_t>(heads * query_blocks));
  std::vector<double> retained(kept.size());
  at::parallel_for(0, heads * query_blocks, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t count = 0;
      double sum = 0;
      for (int64_t word = 0; word < words; ++word) {
        uint32_t bits = KeptBits(mask + i * words, word, key_blocks);
        count += std::popcount(bits);
        for (; bits != 0; bits &= bits - 1) {
          sum += cells[i * key_blocks + word * 32 + std::countr_zero(bits)];
        }
      }
      kept[static_cast<size_t>(i)] = count;
      retained[static_cast<size_t>(i)] = sum;
    }
  });
  MaskStatistics result{at::zeros({heads}, at::kLong), at::zeros({heads}, at::kDouble)};
  auto kept_of = result.kept.accessor<int64_t, 1>();
  auto retained_of = result.retained.accessor<double, 1>();
  for (int64_t i = 0; i < heads * query_blocks; ++i) {
    const int64_t queries = std::min(block_tokens, tokens - i % query_blocks * block_tokens);
    kept_of[i / query_blocks] += kept[static_cast<size_t>(i)];
    retained_of[i / query_blocks] += retained[static_cast<size_t>(i)] *
                                     static_cast<double>(queries) / static_cast<double>(tokens);
  }
  return result;
}

Tensor CountKeptBlocks(const Tensor& mask_words, int64_t heads) {
  const int64_t words = mask_words.numel() / heads;
  const int32_t* mask = mask_words.const_data_ptr<int32_t>();
  Tensor kept = at::zeros({heads}, at::kLong);
  int64_t* counts = kept.mutable_data_ptr<int64_t>();
  at::parallel_for(0, heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t head = begin; head < end; ++head) {
      for (int64_t i = head * words; i < (head + 1) * words; ++i) {
        counts[head] += std::popcount(static_cast<uint32_t>(mask[i]));
      }
    }
  });
  return kept;
}

// One key-value head at a time: its queries' weights over all keys are the only large tensor.
Tensor SampleRetainedMass(const Tensor& q, const Tensor& k, const Tensor& mask_words,
                          const Tensor& queries, int64_t block_tokens) {
  const int64_t tokens = q.size(0);
  const int64_t heads = q.size(1);
  const int64_t group = heads / k.size(1);
  const int64_t blocks = BlockCount(tokens, block_tokens);
  TORCH_CHECK_VALUE(queries.min().item<int64_t>() >= 0 && queries.max().item<int64_t>() < tokens,
                    "sparsed: queries must hold positions in [0, ", tokens - 1, "]");
  const Tensor sampled = q.index_select(0, queries).to(at::kFloat).transpose(0, 1);
  const Tensor kept = MaskRows(mask_words, heads, blocks, at::floor_divide(queries, block_tokens));
  Tensor retained = at::empty({heads}, at::kDouble);
  for (int64_t kv_head = 0; kv_head < k.size(1); ++kv_head) {
    const Tensor rows = sampled.narrow(0, kv_head * group, group).reshape({-1, q.size(2)});
    const Tensor mass = BlockMass(rows, k.select(1, kv_head).to(at::kFloat), block_tokens)
                            .view({group, queries.size(0), blocks});
    const Tensor sums = (mass * kept.narrow(0, kv_head * group, group)).sum(-1);
    retained.narrow(0, kv_head * group, group).copy_(sums.to(at::kDouble).mean(-1));
  }
  return retained;
}

}  // namespace sparsed::kernels::cpu
