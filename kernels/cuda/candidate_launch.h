// SPDX-License-Identifier: Apache-2.0
// Launch of candidate.cu. Pointers are device pointers, tensors contiguous.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>

#include "kernels/cuda/element.h"

namespace sparsed::kernels::cuda {

constexpr int kTileTokens = 8192;  // of the vocabulary

// What a tile of one position's logits comes to.
struct TilePartial {
  double sum;     // of exp(logit - max)
  double weight;  // of exp((logit - max) / temperature), at temperature > 0 only
  uint64_t best;  // the largest logit and the lowest token that has it, see candidate.cu
  float max;      // NaN left out
  int32_t finite;
};

struct CandidateParams {
  const void* logits;  // [positions, vocabulary]
  Element element;
  bool aligned;            // every position is a whole number of 16-byte accesses
  const double* uniforms;  // [positions]
  int64_t positions;
  int64_t vocabulary;
  int64_t tiles;  // ceil(vocabulary / kTileTokens)
  double temperature;
  TilePartial* partials;  // scratch [positions, tiles]
  int32_t* token;         // [positions]
  float* probability;     // [positions]
  bool* finite;           // [positions]
};
void LaunchCandidateStatistics(const CandidateParams& params, cudaStream_t stream);

}  // namespace sparsed::kernels::cuda
