// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include "kernels/reference/reference.h"

namespace sparsed::kernels::reference {

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = Wide(x);
  const at::Tensor factor = at::rsqrt(wide.pow(2).mean(-1, /*keepdim=*/true) + eps);
  return (wide * factor * Wide(weight)).to(x.scalar_type());
}

at::Tensor Rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                const at::Tensor& row_offsets) {
  std::vector<at::Tensor> positions;
  for (int64_t row = 0; row + 1 < row_offsets.size(0); ++row) {
    positions.push_back(
        at::arange((row_offsets[row + 1] - row_offsets[row]).item<int64_t>(), at::kLong));
  }
  const at::Tensor position = at::cat(positions).to(x.device());
  const at::Tensor c = cos.index_select(0, position).unsqueeze(1);
  const at::Tensor s = sin.index_select(0, position).unsqueeze(1);
  const int64_t half = x.size(2) / 2;
  const at::Tensor low = Wide(x.narrow(2, 0, half));
  const at::Tensor high = Wide(x.narrow(2, half, half));
  return at::cat({low * c - high * s, high * c + low * s}, 2).to(x.scalar_type());
}

at::Tensor SiluMul(const at::Tensor& gate_up) {
  const int64_t width = gate_up.size(1) / 2;
  const at::Tensor gate = Wide(gate_up.narrow(1, 0, width));
  return (at::silu(gate) * Wide(gate_up.narrow(1, width, width))).to(gate_up.scalar_type());
}

CandidateStatistics ComputeCandidateStatistics(const at::Tensor& logits, const at::Tensor& uniforms,
                                               double temperature) {
  const at::Tensor wide = logits.to(at::kDouble);
  at::Tensor token = wide.argmax(-1);
  if (temperature > 0) {
    const at::Tensor cumulative = at::softmax(wide / temperature, -1).cumsum(-1);
    token = cumulative.le(uniforms.unsqueeze(1)).sum(-1).clamp_max(logits.size(1) - 1);
  }
  const at::Tensor probability =
      at::softmax(wide, -1).gather(1, token.unsqueeze(1)).squeeze(1).to(at::kFloat);
  return {token.to(at::kInt), probability, logits.isfinite().all(-1)};
}

}  // namespace sparsed::kernels::reference
