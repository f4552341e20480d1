// SPDX-License-Identifier: Apache-2.0
#include "kernels/relevance.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "kernels/block_mask.h"
#include "kernels/reference/reference.h"

namespace sparsed::kernels {
namespace {

constexpr int64_t kHeads = 2;

std::vector<at::Tensor> RandomMass(int64_t layers, int64_t blocks) {
  at::manual_seed(5);
  std::vector<at::Tensor> mass;
  for (int64_t l = 0; l < layers; ++l) {
    mass.push_back(at::softmax(at::randn({kHeads, blocks, blocks}) * 2, -1));
  }
  return mass;
}

// Relevance of `block` as an output of `layer`, by trying every path.
double LargestPath(const std::vector<at::Tensor>& mass, int64_t open, size_t layer, int64_t block) {
  if (block >= open) return 1;
  double best = 0;
  for (size_t reader = layer + 1; reader < mass.size(); ++reader) {
    const at::Tensor attention = mass[reader].amax(0);
    for (int64_t query = 0; query < attention.size(0); ++query) {
      const double weight = attention[query][block].item<double>();
      best = std::max(best, weight * LargestPath(mass, open, reader, query));
    }
  }
  return best;
}

TEST(RelevanceTest, IsTheLargestProductOfMassOverAllPathsToAGeneratedBlock) {
  constexpr int64_t kBlocks = 5;
  constexpr int64_t kOpen = 4;
  const std::vector<at::Tensor> mass = RandomMass(4, kBlocks);
  const at::Tensor relevance = QueryBlockRelevance(mass, kOpen);
  for (size_t layer = 0; layer < mass.size(); ++layer) {
    for (int64_t block = 0; block < kBlocks; ++block) {
      EXPECT_NEAR(relevance[static_cast<int64_t>(layer)][block].item<double>(),
                  LargestPath(mass, kOpen, layer, block), 1e-6)
          << layer << " " << block;
    }
  }
}

TEST(RelevanceTest, RowsAreTheOpenBlocksAndTheMostRelevantOthers) {
  const at::Tensor relevance = at::tensor({0.1f, 0.5f, 0.5f, 0.3f, 1.0f,   //
                                           0.0f, 0.0f, 0.2f, 0.0f, 1.0f})  //
                                   .view({2, 5});
  // ceil(0.3 * 5) = 2 rows beside the open one; the second layer has only one that matters.
  const at::Tensor rows = RelevantQueryBlocks(relevance, 4, 0.3);
  const at::Tensor expected = at::tensor({0, 1, 1, 0, 1, 0, 0, 1, 0, 1}).view({2, 5}).to(at::kBool);
  EXPECT_TRUE(at::equal(rows, expected)) << rows;
  const at::Tensor one = RelevantQueryBlocks(relevance, 4, 0.2);  // the tie: the lower index
  EXPECT_TRUE(one[0][1].item<bool>());
  EXPECT_FALSE(one[0][2].item<bool>());
}

TEST(RelevanceTest, OtherRowsOfAMaskKeepTheirBestBlock) {
  at::manual_seed(6);
  for (const int64_t blocks : {1, 2, 31, 32, 33, 64, 70}) {
    const at::Tensor scores = at::rand({kHeads, blocks, blocks});
    const at::Tensor words = at::full({kHeads * blocks * MaskRowWords(blocks)}, -1, at::kInt);
    const at::Tensor rows = at::arange(blocks).remainder(3).eq(0);
    KeepBestBlock(words, scores, rows);
    const at::Tensor mask = reference::UnpackMask(words, kHeads, blocks, blocks);
    const at::Tensor best = scores.eq(scores.amax(-1, /*keepdim=*/true));
    EXPECT_TRUE(at::equal(mask, at::where(rows.view({1, -1, 1}), at::ones_like(best), best)))
        << blocks;
  }
}

}  // namespace
}  // namespace sparsed::kernels
