// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include "kernels/reference/reference.h"

namespace sparsed::kernels::reference {
namespace {

// order [heads or 1, tokens] -> an index for gather and scatter along the tokens of x.
at::Tensor RowIndex(const at::Tensor& x, const at::Tensor& order) {
  return order.to(at::kLong).t().unsqueeze(2).expand(x.sizes());
}

}  // namespace

at::Tensor NormOrder(const at::Tensor& x, int64_t window_tokens) {
  const int64_t tokens = x.size(0);
  const at::Tensor norms = x.to(at::kDouble).square().sum(2).sqrt().to(at::kFloat).t();
  std::vector<at::Tensor> windows;
  int64_t first = 0;
  for (const at::Tensor& window : norms.split(window_tokens == 0 ? tokens : window_tokens, 1)) {
    windows.push_back(first + std::get<1>(window.sort(/*stable=*/true, /*dim=*/1, false)));
    first += window.size(1);
  }
  return at::cat(windows, 1).to(at::kInt);
}

at::Tensor GatherRows(const at::Tensor& x, const at::Tensor& order) {
  return x.gather(0, RowIndex(x, order));
}

at::Tensor ScatterRows(const at::Tensor& x, const at::Tensor& order) {
  return at::empty_like(x).scatter_(0, RowIndex(x, order), x);
}

}  // namespace sparsed::kernels::reference
