// SPDX-License-Identifier: Apache-2.0
#include "kernels/score.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "kernels/block_mask.h"
#include "kernels/cpu/cpu.h"

namespace sparsed::kernels::cpu {
namespace {

// Tokens of one block and head: row t starts at first + t * stride.
template <class T>
struct Tokens {
  const T* first;
  int64_t stride;
  int64_t count;
};

// Two passes: a sum of squares would lose the variance of channels that are far from zero.
template <class T>
void Statistics(const Tokens<T>& x, int64_t head_dim, float* mean, float* variance) {
  std::fill_n(mean, head_dim, 0.0f);
  std::fill_n(variance, head_dim, 0.0f);
  const float share = 1.0f / static_cast<float>(x.count);
  for (int64_t t = 0; t < x.count; ++t) {
    const T* row = x.first + t * x.stride;
    for (int64_t d = 0; d < head_dim; ++d) mean[d] += static_cast<float>(row[d]);
  }
  for (int64_t d = 0; d < head_dim; ++d) mean[d] *= share;
  for (int64_t t = 0; t < x.count; ++t) {
    const T* row = x.first + t * x.stride;
    for (int64_t d = 0; d < head_dim; ++d) {
      const float deviation = static_cast<float>(row[d]) - mean[d];
      variance[d] += deviation * deviation;
    }
  }
  for (int64_t d = 0; d < head_dim; ++d) variance[d] *= share;
}

}  // namespace

BlockStatistics ComputeBlockStatistics(const Tensor& x, int64_t block_tokens) {
  const int64_t tokens = x.size(0);
  const int64_t heads = x.size(1);
  const int64_t head_dim = x.size(2);
  const int64_t blocks = BlockCount(tokens, block_tokens);
  BlockStatistics result{at::empty({heads, blocks, head_dim}, at::kFloat),
                         at::empty({heads, blocks, head_dim}, at::kFloat)};
  float* mean = result.mean.mutable_data_ptr<float>();
  float* variance = result.variance.mutable_data_ptr<float>();
  AT_DISPATCH_SWITCH(
      x.scalar_type(), "block_statistics", AT_DISPATCH_CASE_FLOATING_TYPES_AND(at::kBFloat16, [&] {
        const auto* data = x.const_data_ptr<scalar_t>();
        at::parallel_for(0, heads * blocks, 4, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t head = i / blocks;
            const int64_t token = i % blocks * block_tokens;
            const Tokens<scalar_t> block{data + token * x.stride(0) + head * x.stride(1),
                                         x.stride(0), std::min(block_tokens, tokens - token)};
            Statistics(block, head_dim, mean + i * head_dim, variance + i * head_dim);
          }
        });
      }));
  return result;
}

// One matrix product. The covariance term is two more inner products of the same blocks, so their
// factors are joined along the inner dimension.
Tensor BlockLogits(const BlockStatistics& q, const BlockStatistics& k, int64_t tokens,
                   int64_t block_tokens, bool covariance) {
  const int64_t heads = q.mean.size(0);
  const int64_t blocks = q.mean.size(1);
  const int64_t kv_heads = k.mean.size(0);
  const auto head_dim = static_cast<double>(q.mean.size(2));
  Tensor queries = q.mean / std::sqrt(head_dim);
  Tensor keys = k.mean;
  if (covariance) {
    queries = at::cat({queries, q.variance / head_dim, q.mean.square() / head_dim}, -1);
    keys = at::cat({keys, k.mean.square() + k.variance, k.variance}, -1);
  }
  // The query heads of a key-value head follow each other: as one tall matrix they share its keys.
  Tensor logits =
      at::bmm(queries.view({kv_heads, heads / kv_heads * blocks, -1}), keys.transpose(1, 2))
          .view({heads, blocks, blocks});
  const int64_t last_tokens = tokens - (blocks - 1) * block_tokens;
  logits.select(2, blocks - 1)
      .add_(std::log(static_cast<double>(last_tokens) / static_cast<double>(block_tokens)));
  return logits;
}

}  // namespace sparsed::kernels::cpu
