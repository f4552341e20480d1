// SPDX-License-Identifier: Apache-2.0
// The oracle: every operator in plain ATen, obviously right, on any device and in fp32, fp64 or
// bf16 (fp32 inside). Contracts: attention.h, select.h, score.h, reorder.h, fused.h. Tests compare
// kernels with these, and a device without kernels of its own runs them (fallback.cc).
#pragma once

#include "kernels/attention.h"
#include "kernels/fused.h"
#include "kernels/reorder.h"
#include "kernels/score.h"
#include "kernels/select.h"

namespace sparsed::kernels::reference {

AttentionResult Attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const PackedRows& rows);
AttentionMassResult AttentionWithMass(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const PackedRows& rows, const at::Tensor& mass_offsets,
                                      int64_t mass_size);
at::Tensor PooledMass(const at::Tensor& q, const at::Tensor& k, int64_t block_tokens, double scale,
                      int64_t first_key_block);

// Masks here are bool [heads, query_blocks, key_blocks], one byte per block pair.
at::Tensor SelectBlocks(const at::Tensor& scores, const at::Tensor& generation_scores,
                        const Selection& selection);
MaskStatistics ComputeMaskStatistics(const at::Tensor& mask, const at::Tensor& mass, int64_t tokens,
                                     int64_t block_tokens);
at::Tensor SampleRetainedMass(const at::Tensor& q, const at::Tensor& k, const at::Tensor& mask,
                              const at::Tensor& queries, int64_t block_tokens);
// Between them and the bit-packed form.
at::Tensor PackMask(const at::Tensor& mask);
at::Tensor UnpackMask(const at::Tensor& words, int64_t heads, int64_t query_blocks,
                      int64_t key_blocks);

BlockStatistics ComputeBlockStatistics(const at::Tensor& x, int64_t block_tokens);
at::Tensor BlockLogits(const BlockStatistics& q, const BlockStatistics& k, int64_t tokens,
                       int64_t block_tokens, bool covariance);

at::Tensor NormOrder(const at::Tensor& x, int64_t window_tokens);
at::Tensor GatherRows(const at::Tensor& x, const at::Tensor& order);
at::Tensor ScatterRows(const at::Tensor& x, const at::Tensor& order);

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps);
at::Tensor Rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                const at::Tensor& row_offsets);
at::Tensor SiluMul(const at::Tensor& gate_up);
CandidateStatistics ComputeCandidateStatistics(const at::Tensor& logits, const at::Tensor& uniforms,
                                               double temperature);

// x in the type that sums are made in: fp64 if it is that, else fp32.
at::Tensor Wide(const at::Tensor& x);

// x with every key-value head repeated, so that there are `heads`.  [..., kv_heads, ...] at `dim`
at::Tensor RepeatKvHeads(const at::Tensor& x, int64_t heads, int64_t dim);

// x summed over blocks of `block_tokens` along `dim`; the last block may be short.
at::Tensor SumBlocks(const at::Tensor& x, int64_t block_tokens, int64_t dim);

// Real tokens of every block, in x's type and on its device, [blocks].
at::Tensor TokensPerBlock(const at::Tensor& x, int64_t tokens, int64_t block_tokens);

}  // namespace sparsed::kernels::reference
