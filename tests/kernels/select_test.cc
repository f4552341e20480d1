// SPDX-License-Identifier: Apache-2.0
#include "kernels/select.h"

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

at::Tensor Select(const at::Tensor& scores, const at::Tensor& generation_scores,
                  std::string_view rule, double ratio, int64_t first_generation_block) {
  // Filled with ones: a rule that forgets to clear is seen.
  const at::Tensor words =
      at::full({scores.size(0) * scores.size(1) * MaskRowWords(scores.size(2))}, -1, at::kInt);
  SelectBlocks(words, scores, generation_scores, rule, ratio, first_generation_block);
  return reference::UnpackMask(words, scores.size(0), scores.size(1), scores.size(2));
}

class SelectGrid : public ::testing::TestWithParam<int64_t> {};  // key blocks

TEST_P(SelectGrid, MatchesReferenceAtEveryBoundaryAndRatio) {
  const int64_t blocks = GetParam();
  at::manual_seed(3);
  // Few distinct values: most rows have ties at the border.
  const at::Tensor scores = at::randint(6, {3, blocks, blocks}, at::kFloat);
  for (const int64_t first : {int64_t{0}, blocks / 2, blocks - 1}) {
    const at::Tensor generation = at::randint(6, {3, blocks, blocks - first}, at::kFloat);
    for (const double ratio : {0.001, 0.3, 0.5, 1.0}) {
      for (const std::string_view rule : {kTopRatio, kTopRatioCompat}) {
        EXPECT_TRUE(at::equal(Select(scores, generation, rule, ratio, first),
                              reference::SelectBlocks(scores, generation, rule, ratio, first)))
            << rule << " first " << first << " ratio " << ratio;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Parity, SelectGrid, ::testing::Values(1, 2, 31, 32, 33, 65));

TEST(SelectTest, RatioOneKeepsEveryBlock) {
  const at::Tensor scores = at::rand({2, 5, 5});
  const at::Tensor generation = at::rand({2, 5, 2});
  EXPECT_TRUE(Select(scores, generation, kTopRatio, 1.0, 3).all().item<bool>());
  EXPECT_TRUE(Select(scores, generation, kTopRatioCompat, 1.0, 3).all().item<bool>());
}

TEST(SelectTest, PaperRuleKeepsAtLeastOneBlockOfEitherPart) {
  at::Tensor scores = at::zeros({1, 10, 10});
  scores.narrow(2, 7, 3).fill_(1.0);  // the generation part outweighs the prompt everywhere
  const at::Tensor mask = Select(scores, at::Tensor(), kTopRatio, 0.01, 7);
  EXPECT_TRUE(mask.narrow(2, 0, 7).sum(2).eq(1).all().item<bool>());
  EXPECT_TRUE(mask.narrow(2, 7, 3).sum(2).eq(1).all().item<bool>());
}

TEST(SelectTest, CompatRuleMayKeepNoPromptBlock) {
  at::Tensor scores = at::zeros({1, 10, 10});
  scores.narrow(2, 7, 3).fill_(1.0);
  const at::Tensor mask = Select(scores, at::rand({1, 10, 3}), kTopRatioCompat, 0.2, 7);
  EXPECT_EQ(mask.narrow(2, 0, 7).sum().item<int64_t>(), 0);
}

TEST(SelectTest, TiesGoToTheLowerIndex) {
  const at::Tensor mask = Select(at::ones({1, 4, 8}), at::Tensor(), kTopRatio, 0.5, 4);
  for (const int64_t part : {0, 4}) {
    EXPECT_TRUE(mask.narrow(2, part, 2).all().item<bool>());
    EXPECT_FALSE(mask.narrow(2, part + 2, 2).any().item<bool>());
  }
}

TEST(MaskStatisticsTest, MatchReferenceAndWeighTheShortLastBlock) {
  at::manual_seed(4);
  for (const int64_t tokens : {1, 64, 65, 200, 1000}) {
    const int64_t blocks = BlockCount(tokens, 64);
    const at::Tensor mass = at::softmax(at::randn({3, blocks, blocks}), -1);
    const at::Tensor mask = at::rand({3, blocks, blocks}).lt(0.5);
    const MaskStatistics kernel =
        ComputeMaskStatistics(reference::PackMask(mask), mass, tokens, 64);
    const MaskStatistics plain = reference::ComputeMaskStatistics(mask, mass, tokens, 64);
    EXPECT_TRUE(at::equal(kernel.kept, plain.kept));
    EXPECT_LE(testing::MaxError(kernel.retained, plain.retained), 1e-12);
  }
}

TEST(SelectChecksTest, ErrorsNameTheArgument) {
  const at::Tensor scores = at::rand({1, 4, 4});
  const auto message = [&](const at::Tensor& generation, std::string_view rule, double ratio,
                           int64_t first) -> std::string {
    try {
      Select(scores, generation, rule, ratio, first);
    } catch (const c10::ValueError& error) {
      return error.what_without_backtrace();
    }
    return "accepted";
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(message({}, kTopRatio, 0.5, 2), "accepted");
  EXPECT_THAT(message({}, "best", 0.5, 2), HasSubstr("rule must be"));
  EXPECT_THAT(message({}, kTopRatio, 0.0, 2), HasSubstr("ratio must be"));
  EXPECT_THAT(message({}, kTopRatio, NAN, 2), HasSubstr("ratio must be"));
  EXPECT_THAT(message({}, kTopRatio, 0.5, 4), HasSubstr("first_generation_block"));
  EXPECT_THAT(message({}, kTopRatioCompat, 0.5, 2), HasSubstr("generation_scores is needed"));
  EXPECT_THAT(message(at::rand({1, 4, 3}), kTopRatioCompat, 0.5, 2),
              HasSubstr("generation_scores"));
}

}  // namespace
}  // namespace sparsed::kernels
