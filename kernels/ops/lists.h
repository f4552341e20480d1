// SPDX-License-Identifier: Apache-2.0
// Where things begin in a packed batch is host data: `int[]` in the schemas, so that every device
// and torch.compile take it as it is, and int64 CPU tensors in the C++ contracts (PackedRows).
// These turn one into the other without a copy.
#pragma once

#include <string_view>

#include <ATen/core/Tensor.h>

namespace sparsed::kernels::ops {

// The list as an int64 CPU tensor. It reads the list's memory: keep it no longer than the list.
at::Tensor ListAsTensor(at::IntArrayRef list);

// The elements of a contiguous one-dimensional int64 CPU tensor, else c10::ValueError; valid as
// long as x.
at::IntArrayRef TensorAsList(const at::Tensor& x, std::string_view argument);

}  // namespace sparsed::kernels::ops
