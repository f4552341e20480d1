// SPDX-License-Identifier: Apache-2.0
#include "kernels/reorder.h"

#include <algorithm>
#include <bit>

#include <ATen/ATen.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/reorder_launch.h"
#include "kernels/cuda/tensor_args.h"

namespace sparsed::kernels::cuda {
namespace {

// The widest access that both tensors' rows are made of.
int AccessBytes(const Tensor& out, const Tensor& x) {
  for (const int bytes : {16, 4}) {
    if (x.size(2) * x.element_size() % bytes == 0 && RowsAligned(x, bytes) &&
        RowsAligned(out, bytes)) {
      return bytes;
    }
  }
  return 2;
}

void MoveRows(const Tensor& out, const Tensor& x, const Tensor& order, bool gather) {
  if (x.numel() == 0) return;
  const int64_t element = x.element_size();
  const int64_t row_bytes = x.size(2) * element;
  TORCH_CHECK_VALUE(x.size(1) * row_bytes <= INT32_MAX, "sparsed: x has ", x.size(1) * row_bytes,
                    " bytes per token, CUDA takes up to ", INT32_MAX);
  const DeviceStream stream(x);
  LaunchMoveRows({.source = static_cast<const char*>(x.const_data_ptr()),
                  .target = static_cast<char*>(out.mutable_data_ptr()),
                  .source_token_stride = x.stride(0) * element,
                  .source_head_stride = x.stride(1) * element,
                  .target_token_stride = out.stride(0) * element,
                  .target_head_stride = out.stride(1) * element,
                  .row_bytes = row_bytes,
                  .tokens = x.size(0),
                  .heads = x.size(1),
                  .order = order.const_data_ptr<int32_t>(),
                  .order_stride = order.size(0) == 1 ? 0 : order.size(1),
                  .gather = gather,
                  .access_bytes = AccessBytes(out, x)},
                 stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

Tensor NormOrder(const Tensor& x, int64_t window_tokens) {
  const int64_t tokens = x.size(0);
  const int64_t heads = x.size(1);
  const int64_t window = window_tokens == 0 ? tokens : std::min(window_tokens, tokens);
  const int64_t segments = heads * ((tokens + window - 1) / window);
  TORCH_CHECK_VALUE(segments <= INT32_MAX, "sparsed: window_tokens is ", window_tokens, ": ",
                    segments, " windows, CUDA takes up to ", INT32_MAX);
  const DeviceStream stream(x);
  const Tensor keys = at::empty({2, heads, tokens}, x.options().dtype(at::kLong));
  const Tensor places = at::empty({heads, tokens}, x.options().dtype(at::kInt));
  Tensor order = at::empty({heads, tokens}, x.options().dtype(at::kInt));
  auto* key_data = reinterpret_cast<uint64_t*>(keys.mutable_data_ptr<int64_t>());
  LaunchNormKeys({.x = x.const_data_ptr(),
                  .element = ElementOf(x),
                  .aligned = RowsAligned(x, 16) && x.size(2) * x.element_size() % 16 == 0,
                  .token_stride = x.stride(0),
                  .head_stride = x.stride(1),
                  .tokens = tokens,
                  .heads = heads,
                  .head_dim = x.size(2),
                  .window = window,
                  .keys = key_data,
                  .places = places.mutable_data_ptr<int32_t>()},
                 stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  const auto window_bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(segments - 1)));
  const SortParams sort{.keys = key_data,
                        .places = places.const_data_ptr<int32_t>(),
                        .sorted_keys = key_data + heads * tokens,
                        .sorted_places = order.mutable_data_ptr<int32_t>(),
                        .count = heads * tokens,
                        .key_bits = 32 + window_bits};
  const size_t bytes = SortWorkspaceBytes(sort);
  const Tensor workspace = at::empty({static_cast<int64_t>(bytes)}, x.options().dtype(at::kByte));
  C10_CUDA_CHECK(LaunchSort(sort, workspace.mutable_data_ptr(), bytes, stream));
  return order;
}

void GatherRows(const Tensor& out, const Tensor& x, const Tensor& order) {
  MoveRows(out, x, order, /*gather=*/true);
}

void ScatterRows(const Tensor& out, const Tensor& x, const Tensor& order) {
  MoveRows(out, x, order, /*gather=*/false);
}

}  // namespace sparsed::kernels::cuda
