// SPDX-License-Identifier: Apache-2.0
// DecodePolicy: which open positions a denoising step commits, and to which tokens.
#pragma once

#include <cstdint>
#include <vector>

namespace sparsed {

inline constexpr double kMaxTemperature = 10;
inline constexpr double kMaxCfgScale = 20;

// Which open positions go first (LLaDA, arXiv 2502.09992, section 2.4).
enum class Remasking {
  kLowConfidence,  // highest probability of the predicted token first; ties: lower position
  kRandom,         // uniformly random order, from Philox(seed, step, position)
};

// Semi-autoregressive decoding: the generation part is cut into blocks of block_length, steps are
// shared evenly among blocks; within a block each step commits open/steps positions, the first
// open%steps steps one more. Only open positions before the end of the current block compete.
struct DecodePolicy {
  int32_t steps = 0;         // denoising steps over all blocks; a multiple of the number of blocks
  int32_t block_length = 0;  // divides the generation length
  Remasking remasking = Remasking::kLowConfidence;
  double temperature = 0;  // 0 = argmax; else tokens are drawn from softmax(logits / temperature)
  uint64_t seed = 0;       // only read at temperature > 0 or with kRandom
  double cfg_scale = 0;    // classifier-free guidance: un + (cfg_scale + 1) * (cond - un); 0 = off
  // Early stop: once one of these is committed, all later positions are closed with it. Empty =
  // never.
  std::vector<int32_t> end_tokens;
};

}  // namespace sparsed
