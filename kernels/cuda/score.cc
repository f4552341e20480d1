// SPDX-License-Identifier: Apache-2.0
#include "kernels/score.h"

#include <cmath>

#include <ATen/ATen.h>

#include "kernels/block_mask.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/score_launch.h"
#include "kernels/cuda/tensor_args.h"

namespace sparsed::kernels::cuda {

BlockStatistics ComputeBlockStatistics(const Tensor& x, int64_t block_tokens) {
  const int64_t tokens = x.size(0);
  const int64_t heads = x.size(1);
  const int64_t head_dim = x.size(2);
  const std::vector<int64_t> sizes = {heads, BlockCount(tokens, block_tokens), head_dim};
  const DeviceStream stream(x);
  const at::TensorOptions options = x.options().dtype(at::kFloat);
  BlockStatistics result{at::empty(sizes, options), at::empty(sizes, options)};
  LaunchBlockStatistics({.x = x.const_data_ptr(),
                         .element = ElementOf(x),
                         .aligned = RowsAligned(x, 16) && head_dim * x.element_size() % 16 == 0,
                         .token_stride = x.stride(0),
                         .head_stride = x.stride(1),
                         .tokens = tokens,
                         .heads = heads,
                         .head_dim = head_dim,
                         .block_tokens = block_tokens,
                         .mean = result.mean.mutable_data_ptr<float>(),
                         .variance = result.variance.mutable_data_ptr<float>()},
                        stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return result;
}

Tensor BlockLogits(const BlockStatistics& q, const BlockStatistics& k, int64_t tokens,
                   int64_t block_tokens, bool covariance) {
  const int64_t heads = q.mean.size(0);
  const int64_t blocks = q.mean.size(1);
  const DeviceStream stream(q.mean);
  Tensor logits = at::empty({heads, blocks, blocks}, q.mean.options());
  const auto last_tokens = static_cast<double>(tokens - (blocks - 1) * block_tokens);
  LaunchBlockLogits({.q_mean = q.mean.const_data_ptr<float>(),
                     .q_variance = q.variance.const_data_ptr<float>(),
                     .k_mean = k.mean.const_data_ptr<float>(),
                     .k_variance = k.variance.const_data_ptr<float>(),
                     .heads = heads,
                     .kv_heads = k.mean.size(0),
                     .blocks = blocks,
                     .head_dim = q.mean.size(2),
                     .covariance = covariance,
                     .last_block_term = static_cast<float>(
                         std::log(last_tokens / static_cast<double>(block_tokens))),
                     .logits = logits.mutable_data_ptr<float>()},
                    stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return logits;
}

}  // namespace sparsed::kernels::cuda
