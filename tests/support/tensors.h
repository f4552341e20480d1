// SPDX-License-Identifier: Apache-2.0
// Golden tensors as at::Tensor. Uses the engine's own safetensors reader: what it cannot read,
// tests see.
#pragma once

#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "engine/model/safetensors.h"

namespace sparsed::testing {

class GoldenTensors {
 public:
  // Every tensor comes on `device`.
  explicit GoldenTensors(const std::filesystem::path& path, at::Device device = at::kCPU)
      : file_(SafetensorsFile::Open(path.string())), device_(device) {
    EXPECT_TRUE(file_.ok()) << file_.status();
  }

  bool Has(const std::string& name) const { return file_.ok() && file_->Find(name) != nullptr; }

  // A copy in the file's dtype; a failed expectation and an empty tensor if there is none.
  at::Tensor Get(const std::string& name) const {
    const TensorView* view = file_.ok() ? file_->Find(name) : nullptr;
    if (view == nullptr) {
      ADD_FAILURE() << "no tensor " << name;
      return at::empty({0});
    }
    at::Tensor tensor =
        at::empty(view->shape, at::TensorOptions().dtype(ScalarTypeOf(view->dtype)));
    std::memcpy(tensor.mutable_data_ptr(), view->data, view->bytes);
    return tensor.to(device_);
  }

  // In fp32. BF16 values are exact in it.
  at::Tensor Float(const std::string& name) const { return Get(name).to(at::kFloat); }

  // [heads, tokens, head_dim] of the files -> the operators' [tokens, heads, head_dim].
  at::Tensor Packed(const std::string& name) const {
    return Float(name).transpose(0, 1).contiguous();
  }

  const SafetensorsFile& file() const { return *file_; }

 private:
  static at::ScalarType ScalarTypeOf(DType dtype) {
    switch (dtype) {
      case DType::kF32:
        return at::kFloat;
      case DType::kBF16:
        return at::kBFloat16;
      case DType::kI32:
        return at::kInt;
      case DType::kBool:
        return at::kBool;
      default:
        ADD_FAILURE() << "golden files do not use " << DTypeName(dtype);
        return at::kByte;
    }
  }

  absl::StatusOr<SafetensorsFile> file_;
  at::Device device_;
};

inline double MaxError(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  if (a.sizes() != b.sizes() || a.numel() == 0) return 0;
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

}  // namespace sparsed::testing
