// SPDX-License-Identifier: Apache-2.0
// Token orders that put similar tokens into one block, and moving rows into and out of them.
// An order is [heads, tokens] int32: place i of head h holds token order[h, i]. Orders with one
// head serve all heads. Throws c10::ValueError naming the argument; on CUDA, where nobody waits for
// the order, rows of places that do not exist are left alone instead.
#pragma once

#include <ATen/core/Tensor.h>

namespace sparsed::kernels {

// Ascending L2 norm, stable, inside windows of window_tokens; 0 = one window (BA-Att, Eq. 10).
// x [tokens, heads, head_dim] -> order [heads, tokens]
at::Tensor NormOrder(const at::Tensor& x, int64_t window_tokens);

// A video of t frames of h x w tokens, raster order, as 8x8 tiles: frame, tile row, tile column,
// then raster inside the tile (NABLA). h and w are multiples of 8. -> [1, t * h * w], on the CPU
at::Tensor FractalOrder(int64_t t, int64_t h, int64_t w);

// out[i, h] = x[order[h, i], h]. Both [tokens, heads, head_dim], last stride 1, not overlapping.
void GatherRows(const at::Tensor& out, const at::Tensor& x, const at::Tensor& order);

// out[order[h, i], h] = x[i, h]: undoes GatherRows.
void ScatterRows(const at::Tensor& out, const at::Tensor& x, const at::Tensor& order);

}  // namespace sparsed::kernels
