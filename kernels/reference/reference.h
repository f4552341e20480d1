// SPDX-License-Identifier: Apache-2.0
// The oracle: every operator in plain ATen, slow and obviously right, on any device and in fp32 or
// fp64. Contracts: attention.h, select.h, fused.h. Tests compare kernels with these; nothing else
// calls them.
#pragma once

#include "kernels/attention.h"
#include "kernels/fused.h"
#include "kernels/select.h"

namespace sparsed::kernels::reference {

AttentionResult Attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const PackedRows& rows);
at::Tensor PooledMass(const at::Tensor& q, const at::Tensor& k, int64_t block_tokens, double scale,
                      int64_t first_key_block);
// -> bool [heads, query_blocks, key_blocks]
at::Tensor SelectBlocks(const at::Tensor& scores, const at::Tensor& generation_scores,
                        std::string_view rule, double ratio, int64_t first_generation_block);
MaskStatistics ComputeMaskStatistics(const at::Tensor& mask, const at::Tensor& mass, int64_t tokens,
                                     int64_t block_tokens);
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps);
at::Tensor Rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                const at::Tensor& row_offsets);
at::Tensor SiluMul(const at::Tensor& gate_up);
CandidateStatistics ComputeCandidateStatistics(const at::Tensor& logits, const at::Tensor& uniforms,
                                               double temperature);

// Between the bit-packed form and bool [heads, query_blocks, key_blocks].
at::Tensor PackMask(const at::Tensor& mask);
at::Tensor UnpackMask(const at::Tensor& words, int64_t heads, int64_t query_blocks,
                      int64_t key_blocks);

}  // namespace sparsed::kernels::reference
