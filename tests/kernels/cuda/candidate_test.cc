// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "kernels/fused.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/cuda/compare.h"
#include "tests/support/gpu.h"

namespace sparsed::kernels {
namespace {

using testing::GpuError;
using testing::OnGpu;
using testing::SameBits;

CandidateStatistics OnGpuStatistics(const at::Tensor& logits, const at::Tensor& uniforms,
                                    double temperature) {
  const CandidateStatistics result =
      ComputeCandidateStatistics(OnGpu(logits), OnGpu(uniforms), temperature);
  return {result.token.cpu(), result.probability.cpu(), result.finite.cpu()};
}

void ExpectSame(const CandidateStatistics& a, const CandidateStatistics& b) {
  EXPECT_TRUE(SameBits(a.token, b.token));
  EXPECT_TRUE(SameBits(a.probability, b.probability));
  EXPECT_TRUE(SameBits(a.finite, b.finite));
}

class CudaCandidateGrid : public testing::GpuTest, public ::testing::WithParamInterface<int64_t> {};

// 8192 tokens are a tile; 126464 is LLaDA's vocabulary.
INSTANTIATE_TEST_SUITE_P(Vocabularies, CudaCandidateGrid,
                         ::testing::Values(1, 2, 31, 1000, 8191, 8192, 8193, 16389, 126464,
                                           262144));

void ExpectStatisticsOfReference(const at::Tensor& logits, double temperature) {
  const at::Tensor uniforms = at::rand({logits.size(0)}, at::kDouble);
  const CandidateStatistics kernel = OnGpuStatistics(logits, uniforms, temperature);
  const CandidateStatistics plain =
      reference::ComputeCandidateStatistics(logits, uniforms, temperature);
  EXPECT_TRUE(at::equal(kernel.token, plain.token));
  EXPECT_LE(GpuError(kernel.probability, plain.probability), 1e-6);
  EXPECT_TRUE(kernel.finite.all().item<bool>());
  ExpectSame(kernel, OnGpuStatistics(logits, uniforms, temperature));
  ExpectSame({kernel.token.narrow(0, 0, 1), kernel.probability.narrow(0, 0, 1),
              kernel.finite.narrow(0, 0, 1)},
             OnGpuStatistics(logits.narrow(0, 0, 1), uniforms.narrow(0, 0, 1), temperature));
}

TEST_P(CudaCandidateGrid, MatchesReferenceInEveryTypeAndTemperature) {
  at::manual_seed(1);
  for (const int64_t positions : {1, 2, 31}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const at::Tensor logits = (at::randn({positions, GetParam()}) * 4).to(dtype);
      for (const double temperature : {0.0, 0.2, 1.0, 3.0}) {
        SCOPED_TRACE(::testing::Message()
                     << positions << " positions, " << dtype << ", temperature " << temperature);
        ExpectStatisticsOfReference(logits, temperature);
      }
    }
  }
}

TEST_P(CudaCandidateGrid, ExtremeUniformsDrawTokensThatHaveWeight) {
  const int64_t vocabulary = GetParam();
  const int64_t first = vocabulary > 2 ? 1 : 0;
  const int64_t last = vocabulary > 2 ? vocabulary - 2 : vocabulary - 1;
  const at::Tensor logits = at::full({3, vocabulary}, -INFINITY);
  logits.narrow(1, first, last - first + 1).zero_();
  for (const double uniform : {0.0, 1 - 0x1p-53}) {
    const at::Tensor uniforms = at::full({3}, uniform, at::kDouble);
    const at::Tensor token = OnGpuStatistics(logits, uniforms, 1.0).token;
    EXPECT_TRUE(token.eq(uniform == 0 ? first : last).all().item<bool>()) << uniform;
  }
}

class CudaCandidate : public testing::GpuTest {};

TEST_F(CudaCandidate, SamplingFollowsTheDistribution) {
  at::manual_seed(2);
  const int64_t draws = 20000;
  const at::Tensor logits = at::tensor({0.0f, 1.0f, 2.0f, -1.0f}).repeat({draws, 1});
  const CandidateStatistics kernel = OnGpuStatistics(logits, at::rand({draws}, at::kDouble), 0.5);
  const at::Tensor counted = at::bincount(kernel.token, {}, 4).to(at::kFloat) / double(draws);
  EXPECT_LE(GpuError(counted, at::softmax(logits[0] / 0.5, -1)), 0.015);  // four deviations
}

TEST_F(CudaCandidate, TiesGoToTheLowerTokenAcrossTiles) {
  at::Tensor logits = at::zeros({4, 20000});
  logits[0][9000] = logits[0][15000] = 3;
  logits[1][8191] = logits[1][8192] = 3;
  logits[2].fill_(-0.0f).narrow(0, 5000, 15000).fill_(0.0f);
  logits[3].fill_(-5);
  const at::Tensor token = OnGpuStatistics(logits, at::zeros({4}, at::kDouble), 0).token;
  EXPECT_TRUE(at::equal(token, at::tensor({9000, 8191, 0, 0}, at::kInt)));
}

TEST_F(CudaCandidate, NanAndInfinityAreAsInTheReferenceAndStayInTheirPosition) {
  at::manual_seed(3);
  at::Tensor logits = at::randn({8, 20000});
  logits[1][7] = NAN;
  logits[1][15000] = NAN;
  logits[2][19999] = INFINITY;
  logits[3][9000] = -INFINITY;
  logits[4].fill_(-INFINITY);
  logits[5].narrow(0, 0, 8192).fill_(-INFINITY);  // a whole tile
  logits[6].fill_(NAN);
  const at::Tensor uniforms = at::rand({8}, at::kDouble);
  for (const double temperature : {0.0, 1.0}) {
    const CandidateStatistics kernel = OnGpuStatistics(logits, uniforms, temperature);
    const CandidateStatistics plain =
        reference::ComputeCandidateStatistics(logits, uniforms, temperature);
    EXPECT_TRUE(at::equal(kernel.token, plain.token)) << kernel.token << plain.token;
    EXPECT_TRUE(at::equal(kernel.finite, plain.finite));
    EXPECT_TRUE(at::equal(kernel.probability.isnan(), plain.probability.isnan()));
    EXPECT_LE(GpuError(kernel.probability.nan_to_num(), plain.probability.nan_to_num()), 1e-6);
  }
}

TEST_F(CudaCandidate, NoPositionsGiveEmptyResults) {
  const CandidateStatistics kernel =
      OnGpuStatistics(at::empty({0, 50}), at::empty({0}, at::kDouble), 1.0);
  EXPECT_EQ(kernel.token.numel() + kernel.probability.numel() + kernel.finite.numel(), 0);
}

}  // namespace
}  // namespace sparsed::kernels
