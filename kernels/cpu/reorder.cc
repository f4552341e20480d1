// SPDX-License-Identifier: Apache-2.0
#include "kernels/reorder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "kernels/cpu/cpu.h"

namespace sparsed::kernels::cpu {
namespace {

constexpr int64_t kTokensPerTask = 64;

template <class T>
float Norm(const T* row, int64_t head_dim) {
  double sum = 0;
  for (int64_t d = 0; d < head_dim; ++d) {
    const auto value = static_cast<double>(row[d]);
    sum += value * value;
  }
  return static_cast<float>(std::sqrt(sum));
}

// Norms are not negative, so their bits compare as they do, with NaN after everything else; the
// token in the lower half makes equal norms keep their order.
uint64_t SortKey(float norm, int64_t token) {
  return static_cast<uint64_t>(std::bit_cast<uint32_t>(norm)) << 32 | static_cast<uint64_t>(token);
}

void CheckOrder(const Tensor& order) {
  const int32_t* tokens = order.const_data_ptr<int32_t>();
  const int64_t count = order.size(1);
  const bool valid = std::all_of(tokens, tokens + order.numel(),
                                 [count](int32_t token) { return token >= 0 && token < count; });
  TORCH_CHECK_VALUE(valid, "sparsed: order must hold tokens in [0, ", count - 1, "]");
}

enum class Direction { kGather, kScatter };

// Rows are moved as bytes, so there is one loop for every dtype.
void MoveRows(const Tensor& out, const Tensor& x, const Tensor& order, Direction direction) {
  CheckOrder(order);
  const int64_t tokens = x.size(0);
  const int64_t heads = x.size(1);
  const auto element = static_cast<int64_t>(x.element_size());
  const auto row_bytes = static_cast<size_t>(x.size(2) * element);
  const auto* source = static_cast<const char*>(x.const_data_ptr());
  auto* target = static_cast<char*>(out.mutable_data_ptr());
  const int32_t* places = order.const_data_ptr<int32_t>();
  at::parallel_for(0, tokens, kTokensPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t other = places[(order.size(0) == 1 ? 0 : head * tokens) + i];
        const int64_t from = direction == Direction::kGather ? other : i;
        const int64_t to = direction == Direction::kGather ? i : other;
        std::memcpy(target + (to * out.stride(0) + head * out.stride(1)) * element,
                    source + (from * x.stride(0) + head * x.stride(1)) * element, row_bytes);
      }
    }
  });
}

}  // namespace

Tensor NormOrder(const Tensor& x, int64_t window_tokens) {
  const int64_t tokens = x.size(0);
  const int64_t heads = x.size(1);
  const int64_t window = window_tokens == 0 ? tokens : std::min(window_tokens, tokens);
  const int64_t windows = (tokens + window - 1) / window;
  Tensor order = at::empty({heads, tokens}, at::kInt);
  int32_t* places = order.mutable_data_ptr<int32_t>();
  AT_DISPATCH_SWITCH(
      x.scalar_type(), "norm_order", AT_DISPATCH_CASE_FLOATING_TYPES_AND(at::kBFloat16, [&] {
        const auto* data = x.const_data_ptr<scalar_t>();
        at::parallel_for(0, heads * windows, 1, [&](int64_t begin, int64_t end) {
          std::vector<uint64_t> keys;
          for (int64_t i = begin; i < end; ++i) {
            const int64_t head = i / windows;
            const int64_t first = i % windows * window;
            const int64_t last = std::min(first + window, tokens);
            keys.clear();
            for (int64_t t = first; t < last; ++t) {
              const auto* row = data + t * x.stride(0) + head * x.stride(1);
              keys.push_back(SortKey(Norm(row, x.size(2)), t));
            }
            std::sort(keys.begin(), keys.end());
            std::transform(keys.begin(), keys.end(), places + head * tokens + first,
                           [](uint64_t key) { return static_cast<int32_t>(key & 0xffffffffu); });
          }
        });
      }));
  return order;
}

void GatherRows(const Tensor& out, const Tensor& x, const Tensor& order) {
  MoveRows(out, x, order, Direction::kGather);
}

void ScatterRows(const Tensor& out, const Tensor& x, const Tensor& order) {
  MoveRows(out, x, order, Direction::kScatter);
}

}  // namespace sparsed::kernels::cpu
