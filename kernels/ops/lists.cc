// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/lists.h"

#include <ATen/ATen.h>

#include "kernels/ops/checks.h"

namespace sparsed::kernels::ops {

at::Tensor ListAsTensor(at::IntArrayRef list) {
  // from_blob has no const form; nothing writes to these tensors.
  return at::from_blob(const_cast<int64_t*>(list.data()), {static_cast<int64_t>(list.size())},
                       at::TensorOptions().dtype(at::kLong));
}

at::IntArrayRef TensorAsList(const at::Tensor& x, std::string_view argument) {
  Require(x.dim() == 1 && x.scalar_type() == at::kLong && x.is_cpu() && x.is_contiguous(), argument,
          "must be a contiguous one-dimensional int64 CPU tensor");
  return {x.const_data_ptr<int64_t>(), static_cast<size_t>(x.numel())};
}

}  // namespace sparsed::kernels::ops
