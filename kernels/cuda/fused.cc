// SPDX-License-Identifier: Apache-2.0
#include "kernels/fused.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/fused_launch.h"
#include "kernels/cuda/tensor_args.h"

namespace sparsed::kernels::cuda {
namespace {

constexpr int64_t kAccessBytes = 16;

// Whether `count` elements of x's dtype are a whole number of accesses.
bool WholeAccesses(const Tensor& x, int64_t count) {
  return count * x.element_size() % kAccessBytes == 0;
}

// One thread block per token.
void RequireGrid(int64_t tokens) {
  TORCH_CHECK_VALUE(tokens <= INT32_MAX, "sparsed: there are ", tokens,
                    " tokens, CUDA takes up to ", INT32_MAX);
}

}  // namespace

Tensor RmsNorm(const Tensor& x, const Tensor& weight, double eps) {
  RequireGrid(x.size(0));
  const DeviceStream stream(x);
  Tensor out = at::empty(x.sizes(), x.options());
  if (x.numel() == 0) return out;
  LaunchRmsNorm({.x = x.const_data_ptr(),
                 .weight = weight.const_data_ptr(),
                 .out = out.mutable_data_ptr(),
                 .element = ElementOf(x),
                 .aligned = WholeAccesses(x, x.size(1)) && RowsAligned(x, kAccessBytes) &&
                            RowsAligned(weight, kAccessBytes),
                 .token_stride = x.stride(0),
                 .tokens = x.size(0),
                 .width = x.size(1),
                 .eps = static_cast<float>(eps)},
                stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

void Rope(const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& row_offsets) {
  RequireGrid(x.size(0));
  if (x.numel() == 0) return;
  const DeviceStream stream(x);
  RopeParams params{.x = x.mutable_data_ptr(),
                    .cos = cos.const_data_ptr<float>(),
                    .sin = sin.const_data_ptr<float>(),
                    .element = ElementOf(x),
                    .aligned = WholeAccesses(x, x.size(2) / 2) && RowsAligned(x, kAccessBytes) &&
                               WholeAccesses(cos, cos.size(1)) && RowsAligned(cos, kAccessBytes) &&
                               RowsAligned(sin, kAccessBytes),
                    .token_stride = x.stride(0),
                    .head_stride = x.stride(1),
                    .heads = x.size(1),
                    .head_dim = x.size(2),
                    .rows = 0,
                    .offsets = {}};
  const auto* offsets = row_offsets.const_data_ptr<int64_t>();
  const int64_t rows = row_offsets.size(0) - 1;
  for (int64_t first = 0; first < rows; first += kRopeRows) {
    params.rows = static_cast<int>(std::min<int64_t>(kRopeRows, rows - first));
    std::copy_n(offsets + first, params.rows + 1, params.offsets);
    LaunchRope(params, stream);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
}

Tensor SiluMul(const Tensor& gate_up) {
  RequireGrid(gate_up.size(0));
  const int64_t width = gate_up.size(1) / 2;
  const DeviceStream stream(gate_up);
  Tensor out = at::empty({gate_up.size(0), width}, gate_up.options());
  if (out.numel() == 0) return out;
  LaunchSiluMul({.gate_up = gate_up.const_data_ptr(),
                 .out = out.mutable_data_ptr(),
                 .element = ElementOf(gate_up),
                 .aligned = WholeAccesses(gate_up, width) && RowsAligned(gate_up, kAccessBytes),
                 .token_stride = gate_up.stride(0),
                 .tokens = gate_up.size(0),
                 .width = width},
                stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

}  // namespace sparsed::kernels::cuda
