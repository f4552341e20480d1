// SPDX-License-Identifier: Apache-2.0
#include "kernels/score.h"

#include <cmath>
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "kernels/block_mask.h"
#include "kernels/reference/reference.h"
#include "tests/support/tensors.h"

namespace sparsed::kernels {
namespace {

using testing::MaxError;

BlockStatistics WideStatistics(const at::Tensor& x, int64_t block_tokens) {
  return reference::ComputeBlockStatistics(x.to(at::kDouble), block_tokens);
}

// tokens, block_tokens, head_dim
class ScoreGrid : public ::testing::TestWithParam<std::tuple<int64_t, int64_t, int64_t>> {};

TEST_P(ScoreGrid, StatisticsMatchReferenceInEitherTypeAndAnyStride) {
  const auto [tokens, block, head_dim] = GetParam();
  at::manual_seed(1);
  const at::Tensor packed = at::randn({tokens, 9, head_dim});
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = packed.to(dtype).narrow(1, 3, 4);  // four heads of a wider tensor
    const BlockStatistics kernel = ComputeBlockStatistics(x, block);
    const BlockStatistics wide = WideStatistics(x, block);
    EXPECT_LE(MaxError(kernel.mean, wide.mean), 2e-6);
    EXPECT_LE(MaxError(kernel.variance, wide.variance), 1e-5);
  }
}

TEST_P(ScoreGrid, LogitsMatchReferenceWithGroupedQueries) {
  const auto [tokens, block, head_dim] = GetParam();
  at::manual_seed(2);
  const at::Tensor q = at::randn({tokens, 4, head_dim}) + 0.5;
  for (const int64_t kv_heads : {1, 2, 4}) {
    const at::Tensor k = at::randn({tokens, kv_heads, head_dim}) + 0.5;
    for (const bool covariance : {false, true}) {
      const at::Tensor kernel =
          BlockLogits(ComputeBlockStatistics(q, block), ComputeBlockStatistics(k, block), tokens,
                      block, covariance);
      const at::Tensor wide = reference::BlockLogits(
          WideStatistics(q, block), WideStatistics(k, block), tokens, block, covariance);
      EXPECT_LE(MaxError(kernel, wide), 1e-5 * (1 + wide.abs().max().item<double>()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, ScoreGrid,
                         ::testing::Combine(::testing::Values(1, 31, 32, 33, 257, 1000),
                                            ::testing::Values(32, 64, 128, 256),
                                            ::testing::Values(1, 16, 64, 128)));

TEST(BlockStatisticsTest, VarianceSurvivesALargeMean) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({256, 1, 64}) * 0.01 + 100;
  const BlockStatistics kernel = ComputeBlockStatistics(x, 128);
  const at::Tensor wide = WideStatistics(x, 128).variance;
  EXPECT_LE(MaxError(kernel.variance / wide, at::ones_like(wide)), 1e-2);
}

TEST(BlockLogitsTest, AreTheMeanLogitOfTheBlocksTokens) {
  at::manual_seed(4);
  const at::Tensor q = at::randn({96, 2, 16});
  const at::Tensor k = at::randn({96, 2, 16});
  const at::Tensor logits =
      at::matmul(q.transpose(0, 1), k.permute({1, 2, 0})) / std::sqrt(16.0);  // [heads, 96, 96]
  const at::Tensor means = logits.view({2, 3, 32, 3, 32}).mean({2, 4});
  EXPECT_LE(MaxError(BlockLogits(ComputeBlockStatistics(q, 32), ComputeBlockStatistics(k, 32), 96,
                                 32, /*covariance=*/false),
                     means),
            1e-5);
}

TEST(BlockLogitsTest, AShortLastKeyBlockCountsForItsRealTokens) {
  const BlockStatistics zero{at::zeros({1, 3, 8}), at::zeros({1, 3, 8})};
  const at::Tensor weights = at::softmax(BlockLogits(zero, zero, 2 * 64 + 16, 64, true), -1);
  // With equal logits, mass is the share of tokens: 64, 64, 16 of 144.
  const at::Tensor expected = at::tensor({64.0, 64.0, 16.0}).div(144).expand({1, 3, 3});
  EXPECT_LE(MaxError(weights, expected), 1e-6);
}

TEST(ScoreChecksTest, ErrorsNameArgumentValueAndLimit) {
  const auto message = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const c10::ValueError& error) {
      return error.what_without_backtrace();
    }
    return "accepted";
  };
  using ::testing::HasSubstr;
  const at::Tensor x = at::randn({100, 2, 16});
  EXPECT_THAT(message([&] { ComputeBlockStatistics(x, 48); }),
              HasSubstr("block_tokens is 48, must be 32, 64, 128 or 256"));
  EXPECT_THAT(message([&] { ComputeBlockStatistics(x.to(at::kHalf), 32); }),
              HasSubstr("x is Half, must be float32 or bfloat16, or float16 on CUDA"));
  EXPECT_THAT(message([&] { ComputeBlockStatistics(x.narrow(0, 0, 0), 32); }),
              HasSubstr("x must not be empty"));
  const BlockStatistics good = ComputeBlockStatistics(x, 32);
  const BlockStatistics three = ComputeBlockStatistics(at::randn({100, 3, 16}), 32);
  EXPECT_EQ(message([&] { BlockLogits(good, good, 100, 32, true); }), "accepted");
  EXPECT_THAT(message([&] { BlockLogits(good, good, 200, 32, true); }),
              HasSubstr("q_mean is [2, 4, 16], must be contiguous [heads, 7, 16]"));
  EXPECT_THAT(message([&] { BlockLogits(good, good, 0, 32, true); }), HasSubstr("tokens is 0"));
  EXPECT_THAT(message([&] { BlockLogits(three, good, 100, 32, true); }),
              HasSubstr("k_mean must have a number of heads that divides q_mean's"));
}

}  // namespace
}  // namespace sparsed::kernels
