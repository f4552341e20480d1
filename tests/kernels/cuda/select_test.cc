// SPDX-License-Identifier: Apache-2.0
#include "kernels/select.h"

#include <cmath>

#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "kernels/block_mask.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/cuda/compare.h"
#include "tests/support/gpu.h"

namespace sparsed::kernels {
namespace {

using testing::GpuError;
using testing::OnGpu;
using testing::SameBits;

// Words on the device of `scores`. Filled with ones: a rule that forgets to clear is seen.
at::Tensor SelectWords(const at::Tensor& scores, const at::Tensor& generation_scores,
                       const Selection& selection) {
  at::Tensor words = at::full({scores.size(0) * scores.size(1) * MaskRowWords(scores.size(2))}, -1,
                              scores.options().dtype(at::kInt));
  SelectBlocks(words, scores, generation_scores, selection);
  return words;
}

at::Tensor SelectOnGpu(const at::Tensor& scores, const at::Tensor& generation_scores,
                       const Selection& selection) {
  const at::Tensor generation =
      generation_scores.defined() ? OnGpu(generation_scores) : generation_scores;
  return SelectWords(OnGpu(scores), generation, selection).cpu();
}

// Multiples of 1/256 with many ties: their sums are exact in any order.
at::Tensor TiedScores(int64_t heads, int64_t query_blocks, int64_t key_blocks) {
  return at::randint(6, {heads, query_blocks, key_blocks}, at::kFloat) / 256;
}

at::Tensor Distribution(int64_t heads, int64_t query_blocks, int64_t key_blocks) {
  return at::softmax(at::randn({heads, query_blocks, key_blocks}) * 2, -1);
}

class CudaSelectGrid : public testing::GpuTest, public ::testing::WithParamInterface<int64_t> {};

// 512 and 4096 are the longest rows of a warp and of a block in registers.
INSTANTIATE_TEST_SUITE_P(KeyBlocks, CudaSelectGrid,
                         ::testing::Values(1, 2, 31, 32, 33, 127, 129, 511, 512, 513, 1000, 4096,
                                           4097, 16389));

void ExpectMasksOfReference(const at::Tensor& scores, int64_t first, double min_mass) {
  const at::Tensor generation = TiedScores(scores.size(0), scores.size(1), scores.size(2) - first);
  for (const double budget : {0.001, 0.3, 0.875, 1.0}) {
    for (const std::string_view rule : SelectionRuleNames()) {
      const Selection selection{rule, budget, first, min_mass};
      EXPECT_TRUE(
          at::equal(SelectOnGpu(scores, generation, selection),
                    reference::PackMask(reference::SelectBlocks(scores, generation, selection))))
          << rule << " first " << first << " budget " << budget << " min_mass " << min_mass;
    }
  }
}

TEST_P(CudaSelectGrid, TiedScoresGiveTheMaskOfTheReference) {
  const int64_t blocks = GetParam();
  at::manual_seed(1);
  const at::Tensor scores = TiedScores(4, 3, blocks);
  for (const int64_t first : {int64_t{0}, blocks / 2, blocks - 1}) {
    for (const double min_mass : {0.0, 0.25, 1.0}) ExpectMasksOfReference(scores, first, min_mass);
  }
}

TEST_P(CudaSelectGrid, DistributionsGiveTheMaskOfTheCpu) {
  const int64_t blocks = GetParam();
  at::manual_seed(2);
  const at::Tensor scores = Distribution(7, 9, blocks);
  const int64_t first = blocks / 3;
  const at::Tensor generation = at::rand({7, 9, blocks - first});
  for (const double budget : {0.05, 0.3, 0.7, 0.95, 1.0}) {
    for (const double min_mass : {0.0, 0.5, 0.9, 1.0}) {
      for (const std::string_view rule : SelectionRuleNames()) {
        const Selection selection{rule, budget, first, min_mass};
        EXPECT_TRUE(at::equal(SelectOnGpu(scores, generation, selection),
                              SelectWords(scores, generation, selection)))
            << rule << " budget " << budget << " min_mass " << min_mass;
      }
    }
  }
}

TEST_P(CudaSelectGrid, NanAndInfinityRankAsOnTheCpuAndStayInTheirRow) {
  const int64_t blocks = GetParam();
  at::manual_seed(3);
  at::Tensor scores = at::rand({2, 5, blocks});
  scores.masked_fill_(at::rand(scores.sizes()).lt(0.3), NAN);
  scores[0][0].fill_(NAN);
  scores[0][1].fill_(INFINITY);
  scores[0][2].fill_(-INFINITY);
  scores[0][3].fill_(-0.0f).narrow(0, blocks / 2, blocks - blocks / 2).fill_(0.0f);
  scores[0][4].fill_(0.125f);
  scores[0][4][blocks / 2] = -INFINITY;
  const int64_t first = blocks / 2;
  const at::Tensor generation = scores.narrow(2, first, blocks - first).contiguous();
  for (const std::string_view rule : SelectionRuleNames()) {
    for (const double min_mass : {0.0, 0.9}) {
      const Selection selection{rule, 0.4, first, min_mass};
      EXPECT_TRUE(at::equal(SelectOnGpu(scores, generation, selection),
                            SelectWords(scores, generation, selection)))
          << rule << " min_mass " << min_mass;
    }
  }
}

TEST_P(CudaSelectGrid, EqualScoresGoByIndex) {
  const int64_t blocks = GetParam();
  const at::Tensor scores = at::full({1, 2, blocks}, 1.0 / 1024);
  for (const std::string_view rule : {kTopRatio, kTopK}) {
    const Selection selection{rule, 0.5, blocks / 2};
    EXPECT_TRUE(at::equal(SelectOnGpu(scores, {}, selection), SelectWords(scores, {}, selection)))
        << rule;
  }
}

TEST_P(CudaSelectGrid, TwoRunsGiveTheSameBits) {
  at::manual_seed(4);
  const at::Tensor scores = OnGpu(Distribution(3, 17, GetParam()));
  const Selection selection{kMass, 0.8, 0, 0.9};
  EXPECT_TRUE(SameBits(SelectWords(scores, {}, selection), SelectWords(scores, {}, selection)));
}

class CudaMaskStatistics : public testing::GpuTest,
                           public ::testing::WithParamInterface<int64_t> {};

INSTANTIATE_TEST_SUITE_P(Tokens, CudaMaskStatistics,
                         ::testing::Values(1, 2, 31, 127, 128, 129, 1000, 4096, 16389));

void ExpectStatisticsOfReference(int64_t tokens, int64_t block, int64_t heads) {
  const int64_t blocks = BlockCount(tokens, block);
  const at::Tensor mass = at::softmax(at::randn({heads, blocks, blocks}), -1);
  const at::Tensor mask = at::rand({heads, blocks, blocks}).lt(0.4);
  const at::Tensor words = OnGpu(reference::PackMask(mask));
  const MaskStatistics kernel = ComputeMaskStatistics(words, OnGpu(mass), tokens, block);
  const MaskStatistics again = ComputeMaskStatistics(words, OnGpu(mass), tokens, block);
  const MaskStatistics plain = reference::ComputeMaskStatistics(mask, mass, tokens, block);
  EXPECT_TRUE(at::equal(kernel.kept.cpu(), plain.kept));
  EXPECT_TRUE(at::equal(CountKeptBlocks(words, heads).cpu(), plain.kept));
  EXPECT_LE(GpuError(kernel.retained, plain.retained), 1e-12);
  EXPECT_TRUE(SameBits(kernel.retained, again.retained));
}

TEST_P(CudaMaskStatistics, MatchReference) {
  at::manual_seed(5);
  for (const int64_t block : {32, 64, 128, 256}) {
    for (const int64_t heads : {1, 4, 7}) {
      SCOPED_TRACE(::testing::Message() << "blocks of " << block << ", heads " << heads);
      ExpectStatisticsOfReference(GetParam(), block, heads);
    }
  }
}

class CudaSelect : public testing::GpuTest {};

TEST_F(CudaSelect, StatisticsDoNotFollowBitsBeyondTheLastKeyBlock) {
  const at::Tensor mass = at::full({1, 3, 3}, 1.0 / 3);
  const MaskStatistics statistics =
      ComputeMaskStatistics(OnGpu(at::full({3}, -1, at::kInt)), OnGpu(mass), 96, 32);
  EXPECT_EQ(statistics.kept.item<int64_t>(), 9);
  EXPECT_NEAR(statistics.retained.item<double>(), 1.0, 1e-6);
}

TEST_F(CudaSelect, OffsetsBeyond32BitsAreRight) {
  constexpr int64_t kHeads = 9;
  constexpr int64_t kBlocks = 16384;  // 9 * 16384^2 > 2^31
  if (!testing::GpuHasFree(int64_t{14} << 30)) GTEST_SKIP() << "needs 14 GiB of GPU memory";
  at::manual_seed(6);
  const at::Tensor scores =
      at::rand({kHeads, kBlocks, kBlocks}, at::TensorOptions().device(at::kCUDA));
  scores.div_(double(kBlocks));
  const Selection selection{kTopK, 0.25};
  const at::Tensor words = SelectWords(scores, {}, selection);
  const at::Tensor last = scores.narrow(0, kHeads - 1, 1).narrow(1, kBlocks - 5, 5).cpu();
  const int64_t last_words = 5 * MaskRowWords(kBlocks);
  EXPECT_TRUE(at::equal(words.narrow(0, words.size(0) - last_words, last_words).cpu(),
                        SelectWords(last.contiguous(), {}, selection)));
  const MaskStatistics statistics = ComputeMaskStatistics(words, scores, kBlocks * 32, 32);
  EXPECT_TRUE(statistics.kept.eq(kBlocks * kBlocks / 4).all().item<bool>());
  // The best quarter of uniform numbers in [0, 1) has a mean of 7/8.
  EXPECT_LE(GpuError(statistics.retained, at::full({kHeads}, 7.0 / 32, at::kDouble)), 1e-4);
}

// Nothing here may wait for the device: a graph that captures it must give new results for new
// scores.
TEST_F(CudaSelect, SelectionAndStatisticsRunInACudaGraph) {
  constexpr int64_t kBlocks = 65;
  at::manual_seed(7);
  const at::Tensor scores = OnGpu(Distribution(4, kBlocks, kBlocks));
  const at::Tensor words =
      at::zeros({4 * kBlocks * MaskRowWords(kBlocks)}, scores.options().dtype(at::kInt));
  const Selection selection{kMass, 0.7, 0, 0.8};
  const auto run = [&] {
    SelectBlocks(words, scores, {}, selection);
    return ComputeMaskStatistics(words, scores, kBlocks * 128, 128);
  };
  c10::cuda::getCurrentCUDAStream().synchronize();
  const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
  const c10::cuda::CUDAStreamGuard guard(stream);
  run();  // what is allocated here is found again inside the capture
  stream.synchronize();
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream.stream(), cudaStreamCaptureModeRelaxed), cudaSuccess);
  const MaskStatistics statistics = run();
  ASSERT_EQ(cudaStreamEndCapture(stream.stream(), &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  const at::Tensor fresh = Distribution(4, kBlocks, kBlocks);
  scores.copy_(fresh);
  ASSERT_EQ(cudaGraphLaunch(executable, stream.stream()), cudaSuccess);
  stream.synchronize();
  const at::Tensor expected = SelectWords(fresh, {}, selection);
  EXPECT_TRUE(at::equal(words.cpu(), expected));
  const MaskStatistics plain = ComputeMaskStatistics(expected, fresh, kBlocks * 128, 128);
  EXPECT_TRUE(at::equal(statistics.kept.cpu(), plain.kept));
  EXPECT_LE(GpuError(statistics.retained, plain.retained), 1e-12);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

}  // namespace
}  // namespace sparsed::kernels
