// SPDX-License-Identifier: Apache-2.0
// Host code without a device version: the order is made once per request.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "kernels/ops/checks.h"
#include "kernels/reorder.h"

namespace sparsed::kernels {
namespace {

constexpr int64_t kTile = 8;             // tokens of a tile's side
constexpr int64_t kMaxTokens = 1 << 30;  // orders are int32

void RequireTiled(int64_t tokens, std::string_view argument) {
  ops::RequireRange(tokens, kTile, kMaxTokens, argument);
  TORCH_CHECK_VALUE(tokens % kTile == 0, "sparsed: ", argument, " is ", tokens,
                    ", must be a multiple of ", kTile);
}

}  // namespace

at::Tensor FractalOrder(int64_t t, int64_t h, int64_t w) {
  ops::RequireRange(t, 1, kMaxTokens, "t");
  RequireTiled(h, "h");
  RequireTiled(w, "w");
  TORCH_CHECK_VALUE(h <= kMaxTokens / w && t <= kMaxTokens / (h * w), "sparsed: t * h * w is ", t,
                    " * ", h, " * ", w, ", must be at most ", kMaxTokens);
  const at::Tensor raster = at::arange(t * h * w, at::kInt);
  return raster.view({t, h / kTile, kTile, w / kTile, kTile})
      .transpose(2, 3)
      .reshape({1, t * h * w});
}

TORCH_LIBRARY_FRAGMENT(sparsed, m) {
  m.def("fractal_order(int t, int h, int w) -> Tensor", FractalOrder);
}

}  // namespace sparsed::kernels
