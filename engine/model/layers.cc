// SPDX-License-Identifier: Apache-2.0
#include "engine/model/layers.h"

#include <ATen/ATen.h>

namespace sparsed {

at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& row_offsets) {
  at::Tensor out = at::empty({x.size(0), weight.size(0)}, x.options());
  const at::Tensor transposed = weight.t();
  const auto offsets = row_offsets.accessor<int64_t, 1>();
  for (int64_t r = 0; r + 1 < offsets.size(0); ++r) {
    const int64_t length = offsets[r + 1] - offsets[r];
    at::Tensor target = out.narrow(0, offsets[r], length);
    at::mm_out(target, x.narrow(0, offsets[r], length), transposed);
  }
  return out;
}

RotaryTable MakeRotaryTable(int64_t positions, int64_t head_dim, double theta) {
  const at::Tensor exponent =
      at::arange(0, head_dim, 2, at::kFloat) / static_cast<double>(head_dim);
  const at::Tensor frequency = 1.0 / at::pow(at::Scalar(theta), exponent);
  const at::Tensor angle = at::outer(at::arange(positions, at::kFloat), frequency);
  return {angle.cos().contiguous(), angle.sin().contiguous()};
}

}  // namespace sparsed
