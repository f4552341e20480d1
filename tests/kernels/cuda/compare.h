// SPDX-License-Identifier: Apache-2.0
// Comparing results on a GPU with references on the CPU.
#pragma once

#include <cstring>
#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

namespace sparsed::testing {

inline at::Tensor OnGpu(const at::Tensor& x) { return x.to(at::kCUDA); }

inline double GpuError(const at::Tensor& kernel, const at::Tensor& expected) {
  EXPECT_EQ(kernel.sizes(), expected.sizes());
  if (kernel.sizes() != expected.sizes() || kernel.numel() == 0) return 0;
  return (kernel.cpu().to(at::kDouble) - expected.cpu().to(at::kDouble)).abs().max().item<double>();
}

// The same shape, dtype and bits; NaN equals NaN of the same bits.
inline bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor first = a.cpu().contiguous();
  const at::Tensor second = b.cpu().contiguous();
  return first.sizes() == second.sizes() && first.scalar_type() == second.scalar_type() &&
         std::memcmp(first.const_data_ptr(), second.const_data_ptr(), first.nbytes()) == 0;
}

// Largest relative error of rounding to a dtype once.
inline double RoundingStep(at::ScalarType dtype) {
  if (dtype == at::kBFloat16) return 0x1p-8;
  return dtype == at::kHalf ? 0x1p-11 : 0x1p-24;
}

// Whether every number of `kernel` is the fp64 `wide` rounded once, after fp32 arithmetic that is
// off by at most `arithmetic` times the largest number. fp16 steps do not shrink below 2^-24.
inline ::testing::AssertionResult IsRounded(const at::Tensor& kernel, const at::Tensor& wide,
                                            double arithmetic) {
  const at::Tensor error = (kernel.cpu().to(at::kDouble) - wide).abs();
  const double smallest = kernel.scalar_type() == at::kHalf ? 0x1p-25 : 0.0;
  const at::Tensor limit = wide.abs() * (1.01 * RoundingStep(kernel.scalar_type())) +
                           arithmetic * wide.abs().max() + smallest;
  if (error.le(limit).all().item<bool>()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "exceeds the limit by " << (error - limit).max().item<double>();
}

inline bool GpuHasFree(int64_t bytes) {
  size_t free = 0;
  size_t total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess && free >= static_cast<size_t>(bytes);
}

}  // namespace sparsed::testing
