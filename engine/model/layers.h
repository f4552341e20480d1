// SPDX-License-Identifier: Apache-2.0
// Building blocks of the families' forwards, on packed activations [tokens, width] fp32.
#pragma once

#include <ATen/core/Tensor.h>

namespace sparsed {

// x @ weight^T; x [tokens, in], weight [out, in] -> [tokens, out].
// One GEMM per row of the batch: a GEMM library picks its blocking by shape, so a row that shares a
// call with others would get other bits than alone. Rows are long enough for that to cost nothing
// measurable.
at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& row_offsets);

// cos and sin tables of the rotary embedding, [positions, head_dim / 2] fp32: angle = position *
// theta^(-2i / head_dim), all in fp32 as the reference computes it.
struct RotaryTable {
  at::Tensor cos;
  at::Tensor sin;
};
RotaryTable MakeRotaryTable(int64_t positions, int64_t head_dim, double theta);

}  // namespace sparsed
