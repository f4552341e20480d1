// SPDX-License-Identifier: Apache-2.0
// Whether this process can run CUDA tensors. Our programs do not link libtorch_cuda; it is loaded here,
// before the first use of CUDA, from where the loader finds it (LD_LIBRARY_PATH, e.g. a Python
// environment's torch/lib).
#pragma once

#include <dlfcn.h>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

namespace sparsed::testing {

inline bool HasGpu() {
  static const bool has_gpu = [] {
    return dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) != nullptr && at::hasCUDA();
  }();
  return has_gpu;
}

// A fixture whose tests are skipped where there is no GPU.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasGpu()) GTEST_SKIP() << "no CUDA GPU, or no libtorch_cuda.so for it";
  }
};

}  // namespace sparsed::testing
