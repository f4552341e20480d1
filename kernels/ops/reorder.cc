// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/reorder.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <torch/library.h>

#include "kernels/cpu/cpu.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/operator.h"

namespace sparsed::kernels {

using at::Tensor;

namespace ops {

void CheckNormOrder(const Tensor& x, int64_t window_tokens) {
  RequireActivations(x, 3, "x");
  Require(x.numel() > 0, "x", "must not be empty");
  RequireRange(x.size(0), 1, INT32_MAX, "x's number of tokens");
  RequireRange(window_tokens, 0, INT64_MAX, "window_tokens");
}

void CheckMoveRows(const Tensor& out, const Tensor& x, const Tensor& order) {
  RequireActivations(x, 3, "x");
  RequireActivations(out, 3, "out");
  Require(out.sizes() == x.sizes() && out.scalar_type() == x.scalar_type(), "out",
          "must have x's shape and dtype");
  const at::MemOverlapStatus overlap = at::get_overlap_status(out, x);
  Require(overlap != at::MemOverlapStatus::Full && overlap != at::MemOverlapStatus::Partial, "out",
          "must not overlap x");
  TORCH_CHECK_VALUE(
      order.dim() == 2 && order.scalar_type() == at::kInt && order.is_contiguous() &&
          (order.size(0) == 1 || order.size(0) == x.size(1)) && order.size(1) == x.size(0),
      "sparsed: order is ", order.scalar_type(), " ", order.sizes(),
      ", must be contiguous int32 [1 or ", x.size(1), ", ", x.size(0), "]: heads, tokens");
  RequireSameDevice(x, out, "out");
  RequireSameDevice(x, order, "order");
}

TORCH_LIBRARY_FRAGMENT(sparsed, m) {
  m.def("norm_order(Tensor x, int window_tokens) -> Tensor");
  m.def("gather_rows(Tensor(a!) out, Tensor x, Tensor order) -> ()");
  m.def("scatter_rows(Tensor(a!) out, Tensor x, Tensor order) -> ()");
}

}  // namespace ops

Tensor NormOrder(const Tensor& x, int64_t window_tokens) {
  static const auto op =
      ops::FindOperator<decltype(ops::NormOrderOp<cpu::NormOrder>)>("sparsed::norm_order");
  return op.call(x, window_tokens);
}

void GatherRows(const Tensor& out, const Tensor& x, const Tensor& order) {
  static const auto op =
      ops::FindOperator<decltype(ops::MoveRowsOp<cpu::GatherRows>)>("sparsed::gather_rows");
  op.call(out, x, order);
}

void ScatterRows(const Tensor& out, const Tensor& x, const Tensor& order) {
  static const auto op =
      ops::FindOperator<decltype(ops::MoveRowsOp<cpu::ScatterRows>)>("sparsed::scatter_rows");
  op.call(out, x, order);
}

}  // namespace sparsed::kernels
