// SPDX-License-Identifier: Apache-2.0
// Adaptors of the operators of kernels/reorder.h; see operator.h. FractalOrder is host code, see
// fractal_order.cc.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/reorder.h"

namespace sparsed::kernels::ops {

void CheckNormOrder(const at::Tensor& x, int64_t window_tokens);
void CheckMoveRows(const at::Tensor& out, const at::Tensor& x, const at::Tensor& order);

template <auto kImplementation>
at::Tensor NormOrderOp(const at::Tensor& x, int64_t window_tokens) {
  CheckNormOrder(x, window_tokens);
  return kImplementation(x, window_tokens);
}

// gather_rows and scatter_rows.
template <auto kImplementation>
void MoveRowsOp(const at::Tensor& out, const at::Tensor& x, const at::Tensor& order) {
  CheckMoveRows(out, x, order);
  kImplementation(out, x, order);
}

}  // namespace sparsed::kernels::ops
