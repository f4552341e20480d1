// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include "kernels/cuda/candidate_launch.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/tensor_args.h"
#include "kernels/fused.h"

namespace sparsed::kernels::cuda {

CandidateStatistics ComputeCandidateStatistics(const Tensor& logits, const Tensor& uniforms,
                                               double temperature) {
  const int64_t positions = logits.size(0);
  const int64_t vocabulary = logits.size(1);
  const int64_t tiles = (vocabulary + kTileTokens - 1) / kTileTokens;
  TORCH_CHECK_VALUE(positions <= INT32_MAX / tiles && vocabulary <= INT32_MAX,
                    "sparsed: logits is ", logits.sizes(),
                    ", CUDA takes up to 2^31 - 1 tokens and as many tiles of them in all");
  const DeviceStream stream(logits);
  const at::TensorOptions options = logits.options();
  CandidateStatistics result{at::empty({positions}, options.dtype(at::kInt)),
                             at::empty({positions}, options.dtype(at::kFloat)),
                             at::empty({positions}, options.dtype(at::kBool))};
  if (positions == 0) return result;
  const Tensor partials = at::empty({positions * tiles * static_cast<int64_t>(sizeof(TilePartial))},
                                    options.dtype(at::kByte));
  LaunchCandidateStatistics(
      {.logits = logits.const_data_ptr(),
       .element = ElementOf(logits),
       .aligned = RowsAligned(logits, 16) && vocabulary * logits.element_size() % 16 == 0,
       .uniforms = uniforms.const_data_ptr<double>(),
       .positions = positions,
       .vocabulary = vocabulary,
       .tiles = tiles,
       .temperature = temperature,
       .partials = reinterpret_cast<TilePartial*>(partials.mutable_data_ptr()),
       .token = result.token.mutable_data_ptr<int32_t>(),
       .probability = result.probability.mutable_data_ptr<float>(),
       .finite = result.finite.mutable_data_ptr<bool>()},
      stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return result;
}

}  // namespace sparsed::kernels::cuda
