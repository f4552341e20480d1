// SPDX-License-Identifier: Apache-2.0
#include "kernels/score.h"

#include <cmath>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "kernels/reference/reference.h"
#include "tests/kernels/cuda/compare.h"
#include "tests/support/gpu.h"

namespace sparsed::kernels {
namespace {

using testing::GpuError;
using testing::OnGpu;
using testing::SameBits;

BlockStatistics WideStatistics(const at::Tensor& x, int64_t block_tokens) {
  return reference::ComputeBlockStatistics(x.to(at::kDouble), block_tokens);
}

BlockStatistics AsFloat(const BlockStatistics& x, at::Device device) {
  return {x.mean.to(device, at::kFloat), x.variance.to(device, at::kFloat)};
}

class CudaScoreGrid : public testing::GpuTest, public ::testing::WithParamInterface<int64_t> {
 protected:
  // call(tokens, block_tokens, head_dim)
  template <class Call>
  static void ForEachShape(Call call) {
    for (const int64_t block : {32, 64, 128, 256}) {
      for (const int64_t head_dim : {1, 33, 64, 128, 257}) {
        SCOPED_TRACE(::testing::Message() << "blocks of " << block << ", head_dim " << head_dim);
        call(GetParam(), block, head_dim);
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Tokens, CudaScoreGrid,
                         ::testing::Values(1, 2, 31, 127, 128, 129, 1000, 4096));

void ExpectStatisticsOfReference(int64_t tokens, int64_t block, int64_t head_dim) {
  const at::Tensor packed = at::randn({tokens, 9, head_dim + 8}) + 0.5;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t shift : {0, 1}) {  // rows that are aligned if head_dim is, and that are not
      const at::Tensor x = packed.to(dtype).narrow(1, 3, 4).narrow(2, shift, head_dim);
      const at::Tensor on_gpu = OnGpu(packed.to(dtype)).narrow(1, 3, 4).narrow(2, shift, head_dim);
      const BlockStatistics kernel = ComputeBlockStatistics(on_gpu, block);
      const BlockStatistics again = ComputeBlockStatistics(on_gpu, block);
      const BlockStatistics wide = WideStatistics(x, block);
      EXPECT_LE(GpuError(kernel.mean, wide.mean), 2e-6) << dtype;
      EXPECT_LE(GpuError(kernel.variance, wide.variance), 1e-5) << dtype;
      EXPECT_TRUE(SameBits(kernel.mean, again.mean) && SameBits(kernel.variance, again.variance));
    }
  }
}

TEST_P(CudaScoreGrid, StatisticsMatchReferenceInEveryTypeAndStride) {
  at::manual_seed(1);
  ForEachShape(ExpectStatisticsOfReference);
}

void ExpectLogitsOfReference(int64_t tokens, int64_t block, int64_t head_dim) {
  const BlockStatistics q = WideStatistics(at::randn({tokens, 4, head_dim}) + 0.5, block);
  for (const int64_t kv_heads : {1, 2, 4}) {
    const BlockStatistics k = WideStatistics(at::randn({tokens, kv_heads, head_dim}) + 0.5, block);
    for (const bool covariance : {false, true}) {
      const at::Tensor kernel =
          BlockLogits(AsFloat(q, at::kCUDA), AsFloat(k, at::kCUDA), tokens, block, covariance);
      const at::Tensor wide = reference::BlockLogits(q, k, tokens, block, covariance);
      EXPECT_LE(GpuError(kernel, wide), 1e-5 * (1 + wide.abs().max().item<double>()));
    }
  }
}

TEST_P(CudaScoreGrid, LogitsMatchReferenceWithGroupedQueries) {
  at::manual_seed(2);
  ForEachShape(ExpectLogitsOfReference);
}

class CudaScore : public testing::GpuTest {};

TEST_F(CudaScore, ManyBlocksGiveLogitsOfEveryTile) {
  at::manual_seed(3);
  const int64_t tokens = 16389;  // 513 blocks of 32
  const BlockStatistics q = WideStatistics(at::randn({tokens, 3, 64}), 32);
  const at::Tensor kernel =
      BlockLogits(AsFloat(q, at::kCUDA), AsFloat(q, at::kCUDA), tokens, 32, true);
  EXPECT_LE(GpuError(kernel, reference::BlockLogits(q, q, tokens, 32, true)), 1e-4);
}

TEST_F(CudaScore, ChannelsFarFromZeroKeepTheirVariance) {
  at::manual_seed(4);
  const at::Tensor x = at::randn({1000, 2, 64}) + 1000;
  const BlockStatistics wide = WideStatistics(x, 128);
  const BlockStatistics kernel = ComputeBlockStatistics(OnGpu(x), 128);
  EXPECT_LE(GpuError(kernel.variance, wide.variance), 1e-4);
}

TEST_F(CudaScore, NanStaysInItsBlockHeadAndChannel) {
  at::Tensor x = at::rand({300, 3, 64});
  x[130][1][5] = NAN;
  const BlockStatistics kernel = ComputeBlockStatistics(OnGpu(x), 128);
  const at::Tensor nan = kernel.mean.isnan().cpu();
  EXPECT_TRUE(nan[1][1][5].item<bool>());
  EXPECT_EQ(nan.sum().item<int64_t>(), 1);
  EXPECT_EQ(kernel.variance.isnan().sum().item<int64_t>(), 1);
}

}  // namespace
}  // namespace sparsed::kernels
