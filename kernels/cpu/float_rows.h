// SPDX-License-Identifier: Apache-2.0
// Runs of a tensor's elements, fp32 or bf16, as fp32 and back; and tiles turned on their side.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace sparsed::kernels::cpu {

// A tensor to read from. It must outlive the reader.
class FloatReader {
 public:
  explicit FloatReader(const at::Tensor& x)
      : data_(x.const_data_ptr()), bfloat16_(x.scalar_type() == at::kBFloat16) {}

  // target[i] = element `offset` + i of the storage, for i < n.
  void Read(int64_t offset, int64_t n, float* target) const {
    if (!bfloat16_) {
      std::copy_n(static_cast<const float*>(data_) + offset, n, target);
      return;
    }
    const auto* source = static_cast<const uint16_t*>(data_) + offset;
    for (int64_t i = 0; i < n; ++i) {
      target[i] = std::bit_cast<float>(static_cast<uint32_t>(source[i]) << 16);
    }
  }

 private:
  const void* data_;
  bool bfloat16_;
};

// A tensor to write to. It must outlive the writer.
class FloatWriter {
 public:
  explicit FloatWriter(const at::Tensor& x)
      : data_(x.mutable_data_ptr()), bfloat16_(x.scalar_type() == at::kBFloat16) {}

  // Element `offset` + i of the storage = source[i] for i < n, rounded to nearest even.
  void Write(int64_t offset, int64_t n, const float* source) const {
    if (!bfloat16_) {
      std::copy_n(source, n, static_cast<float*>(data_) + offset);
      return;
    }
    auto* target = static_cast<uint16_t*>(data_) + offset;
    for (int64_t i = 0; i < n; ++i) {
      const auto bits = std::bit_cast<uint32_t>(source[i]);
      const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
      const bool nan = (bits & 0x7fffffff) > 0x7f800000;  // adding could carry it into a number
      target[i] = static_cast<uint16_t>(nan ? (bits >> 16) | 0x40 : rounded);
    }
  }

 private:
  void* data_;
  bool bfloat16_;
};

// target[column, row] = source[row, column].
void Transpose(const float* source, int64_t source_stride, int64_t rows, int64_t columns,
               float* target, int64_t target_stride);

}  // namespace sparsed::kernels::cpu
