// SPDX-License-Identifier: Apache-2.0
// Small per-token operators. Each token's result depends on that token's values alone, bit for bit,
// wherever it stands in the packed batch; ATen's elementwise kernels do not promise that at their
// vector tails. x, gate_up and logits are fp32, on CUDA bf16 or fp16 as well: fp32 inside, rounded
// once, results of their dtype. Contiguous in the last dimension, all on one device. Throw
// c10::ValueError naming the argument.
#pragma once

#include <ATen/core/Tensor.h>

namespace sparsed::kernels {

// x / sqrt(mean(x^2) + eps) * weight over the last dimension. x [tokens, width], weight [width] of
// x's dtype -> as x.
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps);

// Rotary position embedding, half-split (NeoX) layout, in place.
//   x [tokens, heads, head_dim]; cos, sin [positions, head_dim / 2] fp32; position of token t in its
//   row is t - row_offsets[row]; row_offsets [rows + 1] int64 on the CPU.
void Rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
          const at::Tensor& row_offsets);

// silu(gate) * up for gate_up [tokens, 2 * width] = [gate | up] -> [tokens, width].
at::Tensor SiluMul(const at::Tensor& gate_up);

// What a decoding policy needs to know of the logits of candidate positions.
//   logits   [positions, vocabulary]
//   uniforms [positions] fp64 in [0, 1); only read when temperature > 0
//   -> token [positions] int32: argmax (ties: lower id), or at temperature > 0 the token where the
//   cumulative
//      softmax(logits / temperature) passes the uniform number, which is what Gumbel noise draws
//      too probability [positions] fp32: softmax(logits)[token], temperature not applied finite
//      [positions] bool: no NaN and no Inf among the logits
struct CandidateStatistics {
  at::Tensor token;
  at::Tensor probability;
  at::Tensor finite;
};
CandidateStatistics ComputeCandidateStatistics(const at::Tensor& logits, const at::Tensor& uniforms,
                                               double temperature);

}  // namespace sparsed::kernels
