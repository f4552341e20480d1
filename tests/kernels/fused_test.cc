// SPDX-License-Identifier: Apache-2.0
#include "kernels/fused.h"

#include <cmath>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "kernels/reference/reference.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tensors.h"

namespace sparsed::kernels {
namespace {

using testing::MaxError;

class FusedWidth : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Widths, FusedWidth, ::testing::Values(1, 2, 16, 33, 384, 1000));

TEST_P(FusedWidth, RmsNormMatchesReference) {
  at::manual_seed(1);
  const at::Tensor x = at::randn({37, GetParam()}) * 3;
  const at::Tensor weight = at::randn({GetParam()});
  const at::Tensor wide = reference::RmsNorm(x.to(at::kDouble), weight.to(at::kDouble), 1e-5);
  EXPECT_LE(MaxError(RmsNorm(x, weight, 1e-5), wide),
            2 * MaxError(reference::RmsNorm(x, weight, 1e-5), wide) + 1e-6);
}

TEST_P(FusedWidth, SiluMulMatchesReference) {
  at::manual_seed(2);
  at::Tensor x = at::randn({5, 2 * GetParam()}) * 20;
  const at::Tensor wide = reference::SiluMul(x.to(at::kDouble));
  // fp32 rounding of values up to about 60 * 60, and Exp2's 2e-7.
  EXPECT_LE(MaxError(SiluMul(x), wide), 6e-7 * wide.abs().max().item<double>() + 1e-7);
}

TEST(FusedTest, SiluMulIsExactAtTheExtremes) {
  const at::Tensor x = at::tensor({-1000.0f, -88.0f, 0.0f, 1000.0f, 1.0f, 1.0f, 1.0f, 1.0f});
  const at::Tensor out = SiluMul(x.view({1, 8}));
  EXPECT_NEAR(out[0][0].item<float>(), 0.0f, 1e-30f);
  EXPECT_NEAR(out[0][1].item<float>(), 0.0f, 1e-30f);
  EXPECT_EQ(out[0][2].item<float>(), 0.0f);
  EXPECT_EQ(out[0][3].item<float>(), 1000.0f);
}

TEST(FusedTest, RopeRestartsAtEachRow) {
  at::manual_seed(3);
  const at::Tensor angles = at::outer(at::arange(100, at::kFloat), at::rand({16}));
  const at::Tensor cos = angles.cos();
  const at::Tensor sin = angles.sin();
  const at::Tensor offsets = testing::Longs({0, 100, 101, 140});
  at::Tensor x = at::randn({140, 5, 32});
  const at::Tensor expected = reference::Rope(x, cos, sin, offsets);
  Rope(x, cos, sin, offsets);
  EXPECT_LE(MaxError(x, expected), 1e-6);
}

TEST(FusedTest, RopeRefusesRowsThatDoNotFit) {
  const at::Tensor angles = at::rand({5, 8});
  for (const std::vector<int64_t>& offsets : std::vector<std::vector<int64_t>>{
           {}, {0}, {0, 5}, {0, -1, 6}, {0, 6} /* longer than the angles */}) {
    EXPECT_THROW(Rope(at::rand({6, 1, 16}), angles, angles, testing::Longs(offsets)),
                 c10::ValueError);
  }
}

TEST(FusedTest, HalfPrecisionIsRefusedOnTheCpu) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor x = at::rand({3, 16}).to(dtype);
    const at::Tensor angles = at::rand({3, 8});
    EXPECT_THROW(RmsNorm(x, x[0], 1e-6), c10::ValueError);
    EXPECT_THROW(RmsNorm(x.to(at::kFloat), x[0], 1e-6), c10::ValueError);
    EXPECT_THROW(Rope(x.view({3, 1, 16}), angles, angles, testing::Longs({0, 3})), c10::ValueError);
    EXPECT_THROW(SiluMul(x), c10::ValueError);
    EXPECT_THROW(ComputeCandidateStatistics(x, at::zeros({3}, at::kDouble), 0), c10::ValueError);
  }
}

// What kernels in half precision are compared with: fp32 inside, one rounding.
TEST(FusedTest, ReferencesComputeInFloatAndKeepTheDtype) {
  at::manual_seed(8);
  const at::Tensor angles = at::rand({7, 16});
  const at::Tensor offsets = testing::Longs({0, 7});
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor x = at::randn({7, 32}).to(dtype);
    const at::Tensor wide = x.to(at::kFloat);
    EXPECT_TRUE(at::equal(reference::RmsNorm(x, x[0], 1e-6),
                          reference::RmsNorm(wide, wide[0], 1e-6).to(dtype)));
    EXPECT_TRUE(at::equal(reference::SiluMul(x), reference::SiluMul(wide).to(dtype)));
    EXPECT_TRUE(
        at::equal(reference::Rope(x.view({7, 1, 32}), angles, angles, offsets),
                  reference::Rope(wide.view({7, 1, 32}), angles, angles, offsets).to(dtype)));
  }
}

TEST(FusedTest, TokenBitsDoNotDependOnTheirPlace) {
  at::manual_seed(4);
  const at::Tensor x = at::randn({101, 50});
  const at::Tensor weight = at::randn({50});
  const at::Tensor norm = RmsNorm(x, weight, 1e-6);
  const at::Tensor silu = SiluMul(x);
  for (const int64_t t : {0, 1, 63, 100}) {
    EXPECT_TRUE(at::equal(norm.narrow(0, t, 1), RmsNorm(x.narrow(0, t, 1).clone(), weight, 1e-6)));
    EXPECT_TRUE(at::equal(silu.narrow(0, t, 1), SiluMul(x.narrow(0, t, 1).clone())));
  }
}

TEST(CandidateStatisticsTest, GreedyMatchesReference) {
  at::manual_seed(5);
  const at::Tensor logits = at::randn({40, 1003}) * 5;
  const at::Tensor uniforms = at::zeros({40}, at::kDouble);
  const CandidateStatistics kernel = ComputeCandidateStatistics(logits, uniforms, 0);
  const CandidateStatistics plain = reference::ComputeCandidateStatistics(logits, uniforms, 0);
  EXPECT_TRUE(at::equal(kernel.token, plain.token));
  EXPECT_LE(MaxError(kernel.probability, plain.probability), 1e-6);
  EXPECT_TRUE(kernel.finite.all().item<bool>());
}

TEST(CandidateStatisticsTest, SampledTokensMatchReference) {
  at::manual_seed(6);
  const at::Tensor logits = at::randn({200, 300}) * 3;
  const at::Tensor uniforms = at::rand({200}, at::kDouble);
  for (const double temperature : {0.2, 1.0, 3.0}) {
    const CandidateStatistics kernel = ComputeCandidateStatistics(logits, uniforms, temperature);
    const CandidateStatistics plain =
        reference::ComputeCandidateStatistics(logits, uniforms, temperature);
    EXPECT_TRUE(at::equal(kernel.token, plain.token)) << temperature;
    EXPECT_LE(MaxError(kernel.probability, plain.probability), 1e-6);
  }
}

TEST(CandidateStatisticsTest, SamplingFollowsTheDistribution) {
  at::manual_seed(7);
  const int64_t draws = 20000;
  const at::Tensor logits = at::tensor({0.0f, 1.0f, 2.0f, -1.0f}).repeat({draws, 1});
  const CandidateStatistics kernel =
      ComputeCandidateStatistics(logits, at::rand({draws}, at::kDouble), 0.5);
  const at::Tensor expected = at::softmax(logits[0] / 0.5, -1);
  const at::Tensor counted = at::bincount(kernel.token, {}, 4).to(at::kFloat) / double(draws);
  EXPECT_LE(MaxError(counted, expected), 0.015);  // four standard deviations at n = 20000
}

TEST(CandidateStatisticsTest, TiesGoToTheLowerToken) {
  const at::Tensor logits = at::tensor({1.0f, 3.0f, 3.0f, 2.0f}).view({1, 4});
  const CandidateStatistics kernel =
      ComputeCandidateStatistics(logits, at::zeros({1}, at::kDouble), 0);
  EXPECT_EQ(kernel.token[0].item<int>(), 1);
}

TEST(CandidateStatisticsTest, NanAndInfAreReportedPerPosition) {
  at::Tensor logits = at::zeros({4, 50});
  logits[1][7] = NAN;
  logits[2][49] = INFINITY;
  const CandidateStatistics kernel =
      ComputeCandidateStatistics(logits, at::zeros({4}, at::kDouble), 1.0);
  const at::Tensor expected = at::tensor({1, 0, 0, 1}).to(at::kBool);
  EXPECT_TRUE(at::equal(kernel.finite, expected));
}

}  // namespace
}  // namespace sparsed::kernels
