// SPDX-License-Identifier: Apache-2.0
// What the golden tests of the operators share. Tolerances are the golden README's, for fp32.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ATen/ATen.h>

#include "kernels/attention.h"
#include "kernels/reorder.h"
#include "tests/support/gpu.h"
#include "tests/support/packed_rows.h"

namespace sparsed::testing {

inline constexpr double kOutTolerance = 2e-5;
inline constexpr double kMassTolerance = 1e-5;

inline nlohmann::json ReadJson(const std::filesystem::path& path) {
  std::ifstream stream(path);
  return nlohmann::json::parse(stream);
}

// A golden file's test on a device: {device, name of the file}. Suites on a GPU are skipped where
// there is none.
class GoldenOnDevice : public ::testing::TestWithParam<std::tuple<at::DeviceType, const char*>> {
 protected:
  void SetUp() override {
    if (device() == at::kCUDA && !HasGpu()) GTEST_SKIP() << "no CUDA GPU, or no libtorch_cuda.so";
  }
  at::DeviceType device() const { return std::get<0>(GetParam()); }
  std::string name() const { return std::get<1>(GetParam()); }

  // One dense row on the device.
  kernels::PackedRows DenseRow(int64_t tokens, int64_t block_tokens) const {
    kernels::PackedRows rows = DenseRows({tokens}, block_tokens);
    rows.mask_arena = rows.mask_arena.to(device());
    return rows;
  }
};

inline std::string GoldenName(const ::testing::TestParamInfo<GoldenOnDevice::ParamType>& test) {
  return std::get<1>(test.param);
}

// The tokens that the files keep of an output [tokens, heads, head_dim] -> [heads, rows, head_dim].
inline at::Tensor Rows(const at::Tensor& out, const at::Tensor& rows) {
  return out.index_select(0, rows.to(at::kLong)).transpose(0, 1);
}

inline at::Tensor Gathered(const at::Tensor& x, const at::Tensor& order) {
  at::Tensor out = at::empty_like(x);
  kernels::GatherRows(out, x, order);
  return out;
}

inline at::Tensor Scattered(const at::Tensor& x, const at::Tensor& order) {
  at::Tensor out = at::empty_like(x);
  kernels::ScatterRows(out, x, order);
  return out;
}

// One row whose mask is these words.
inline kernels::PackedRows MaskedRow(int64_t tokens, int64_t block_tokens,
                                     const at::Tensor& mask_words) {
  kernels::PackedRows rows = DenseRows({tokens}, block_tokens);
  rows.mask_arena = mask_words;
  rows.mask_offsets[0] = 0;
  return rows;
}

}  // namespace sparsed::testing
