// SPDX-License-Identifier: Apache-2.0
// From Torch tensors to arguments of the launch functions.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "kernels/cuda/element.h"

namespace sparsed::kernels::cuda {

// The checks of kernels/ops have let no other dtype through.
inline Element ElementOf(const at::Tensor& x) {
  if (x.scalar_type() == at::kBFloat16) return Element::kBFloat16;
  return x.scalar_type() == at::kHalf ? Element::kHalf : Element::kFloat;
}

// Whether every row along the last dimension starts at a multiple of `bytes`.
inline bool RowsAligned(const at::Tensor& x, int64_t bytes) {
  if (reinterpret_cast<uintptr_t>(x.const_data_ptr()) % static_cast<uintptr_t>(bytes) != 0) {
    return false;
  }
  for (int64_t d = 0; d + 1 < x.dim(); ++d) {
    if (x.size(d) > 1 && x.stride(d) * x.element_size() % bytes != 0) return false;
  }
  return true;
}

// Makes a tensor's device the current one, and names the stream that Torch runs it on.
class DeviceStream {
 public:
  explicit DeviceStream(const at::Tensor& x)
      : guard_(x.device()), stream_(c10::cuda::getCurrentCUDAStream()) {}

  operator cudaStream_t() const { return stream_.stream(); }  // NOLINT(google-explicit-constructor)

 private:
  c10::cuda::CUDAGuard guard_;
  c10::cuda::CUDAStream stream_;
};

}  // namespace sparsed::kernels::cuda
