// SPDX-License-Identifier: Apache-2.0
// CUDA implementations of the operators; arguments were checked by kernels/ops. Contracts:
// attention.h, select.h, score.h, reorder.h, fused.h. Called through Torch's dispatcher only, see
// registration.cc.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/attention.h"
#include "kernels/fused.h"
#include "kernels/reorder.h"
#include "kernels/score.h"
#include "kernels/select.h"

namespace sparsed::kernels::cuda {

using at::Tensor;

AttentionResult Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                          const PackedRows& rows);
AttentionMassResult AttentionWithMass(const Tensor& q, const Tensor& k, const Tensor& v,
                                      const PackedRows& rows, const Tensor& mass_offsets,
                                      int64_t mass_size);
Tensor PooledMass(const Tensor& q, const Tensor& k, int64_t block_tokens, double scale,
                  int64_t first_key_block);

void SelectBlocks(const Tensor& mask_words, const Tensor& scores, const Tensor& generation_scores,
                  const Selection& selection);
MaskStatistics ComputeMaskStatistics(const Tensor& mask_words, const Tensor& mass, int64_t tokens,
                                     int64_t block_tokens);
Tensor CountKeptBlocks(const Tensor& mask_words, int64_t heads);
Tensor SampleRetainedMass(const Tensor& q, const Tensor& k, const Tensor& mask_words,
                          const Tensor& queries, int64_t block_tokens);

BlockStatistics ComputeBlockStatistics(const Tensor& x, int64_t block_tokens);
Tensor BlockLogits(const BlockStatistics& q, const BlockStatistics& k, int64_t tokens,
                   int64_t block_tokens, bool covariance);

Tensor NormOrder(const Tensor& x, int64_t window_tokens);
void GatherRows(const Tensor& out, const Tensor& x, const Tensor& order);
void ScatterRows(const Tensor& out, const Tensor& x, const Tensor& order);

Tensor RmsNorm(const Tensor& x, const Tensor& weight, double eps);
void Rope(const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& row_offsets);
Tensor SiluMul(const Tensor& gate_up);
CandidateStatistics ComputeCandidateStatistics(const Tensor& logits, const Tensor& uniforms,
                                               double temperature);

}  // namespace sparsed::kernels::cuda
