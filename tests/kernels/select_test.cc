// SPDX-License-Identifier: Apache-2.0
#include "kernels/select.h"

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

// -> bool [heads, query_blocks, key_blocks]
at::Tensor Select(const at::Tensor& scores, const at::Tensor& generation_scores,
                  const Selection& selection) {
  // Filled with ones: a rule that forgets to clear is seen.
  const at::Tensor words =
      at::full({scores.size(0) * scores.size(1) * MaskRowWords(scores.size(2))}, -1, at::kInt);
  SelectBlocks(words, scores, generation_scores, selection);
  return reference::UnpackMask(words, scores.size(0), scores.size(1), scores.size(2));
}

// Scores with few distinct values, so that most rows have ties at the border. Multiples of 1/256:
// their sums are exact in any order.
at::Tensor TiedScores(int64_t query_blocks, int64_t key_blocks) {
  return at::randint(6, {3, query_blocks, key_blocks}, at::kFloat) / 256;
}

at::Tensor Distribution(int64_t blocks) {  // rows sum to 1
  return at::softmax(at::randn({3, blocks, blocks}) * 2, -1);
}

// Sum of the kept scores of every query block, [heads, query_blocks] fp64.
at::Tensor KeptMass(const at::Tensor& scores, const at::Tensor& mask) {
  return scores.to(at::kDouble).masked_fill(mask.logical_not(), 0.0).sum(-1);
}

class SelectGrid : public ::testing::TestWithParam<int64_t> {};  // key blocks

TEST_P(SelectGrid, MatchesReferenceForEveryRuleBoundaryAndBudget) {
  const int64_t blocks = GetParam();
  at::manual_seed(3);
  const at::Tensor scores = TiedScores(blocks, blocks);
  for (const int64_t first : {int64_t{0}, blocks / 2, blocks - 1}) {
    const at::Tensor generation = TiedScores(blocks, blocks - first);
    for (const double budget : {0.001, 0.3, 0.5, 0.875, 1.0}) {
      for (const double min_mass : {0.0, 0.25, 1.0}) {
        for (const std::string_view rule : SelectionRuleNames()) {
          const Selection selection{rule, budget, first, min_mass};
          EXPECT_TRUE(at::equal(Select(scores, generation, selection),
                                reference::SelectBlocks(scores, generation, selection)))
              << rule << " first " << first << " budget " << budget << " min_mass " << min_mass;
        }
      }
    }
  }
}

TEST_P(SelectGrid, BudgetOneKeepsEveryBlock) {
  const int64_t blocks = GetParam();
  at::manual_seed(4);
  const at::Tensor scores = Distribution(blocks);
  const int64_t first = blocks / 2;
  for (const std::string_view rule : SelectionRuleNames()) {
    const at::Tensor generation = at::rand({3, blocks, blocks - first});
    EXPECT_TRUE(Select(scores, generation, {rule, 1.0, first}).all().item<bool>()) << rule;
  }
}

TEST_P(SelectGrid, MassDropsLessThanItMayAndNoBlockMoreCouldGo) {
  const int64_t blocks = GetParam();
  at::manual_seed(5);
  const at::Tensor scores = Distribution(blocks);
  const at::Tensor wide = scores.to(at::kDouble);
  for (const double budget : {0.05, 0.5, 0.7, 0.95}) {
    const at::Tensor mask = Select(scores, {}, {kMass, budget});
    const at::Tensor dropped = wide.masked_fill(mask, 0.0).sum(-1);
    const at::Tensor worst_kept = wide.masked_fill(mask.logical_not(), 2.0).amin(-1);
    const at::Tensor best_dropped = wide.masked_fill(mask, -1.0).amax(-1);
    EXPECT_TRUE(dropped.lt(1 - budget).all().item<bool>()) << budget;
    const at::Tensor single = mask.sum(-1).eq(1);
    EXPECT_TRUE((dropped + worst_kept).ge(1 - budget).logical_or(single).all().item<bool>());
    EXPECT_TRUE(best_dropped.le(worst_kept).all().item<bool>());
  }
}

TEST_P(SelectGrid, MinMassAddsTheFewestBestBlocksThatReachIt) {
  const int64_t blocks = GetParam();
  at::manual_seed(6);
  const at::Tensor scores = Distribution(blocks);
  const int64_t first = blocks / 2;
  const at::Tensor generation = at::rand({3, blocks, blocks - first});
  for (const std::string_view rule : SelectionRuleNames()) {
    const at::Tensor before = Select(scores, generation, {rule, 0.1, first});
    for (const double min_mass : {0.1, 0.6, 0.9}) {
      const at::Tensor after = Select(scores, generation, {rule, 0.1, first, min_mass});
      EXPECT_TRUE(before.logical_and(after).eq(before).all().item<bool>()) << rule;
      const at::Tensor kept = KeptMass(scores, after);
      EXPECT_TRUE(kept.ge(min_mass).all().item<bool>()) << rule << " " << min_mass;
      const at::Tensor added = after.logical_and(before.logical_not());
      const at::Tensor worst_added =
          scores.to(at::kDouble).masked_fill(added.logical_not(), 2.0).amin(-1);
      const at::Tensor best_left = scores.to(at::kDouble).masked_fill(after, -1.0).amax(-1);
      EXPECT_TRUE((kept - worst_added).lt(min_mass).all().item<bool>()) << rule;
      EXPECT_TRUE(best_left.le(worst_added).all().item<bool>()) << rule;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Blocks, SelectGrid, ::testing::Values(1, 2, 31, 32, 33, 65));

TEST(SelectTest, PaperRuleKeepsAtLeastOneBlockOfEitherPart) {
  at::Tensor scores = at::zeros({1, 10, 10});
  scores.narrow(2, 7, 3).fill_(1.0);  // the generation part outweighs the prompt everywhere
  const at::Tensor mask = Select(scores, {}, {kTopRatio, 0.01, 7});
  EXPECT_TRUE(mask.narrow(2, 0, 7).sum(2).eq(1).all().item<bool>());
  EXPECT_TRUE(mask.narrow(2, 7, 3).sum(2).eq(1).all().item<bool>());
}

TEST(SelectTest, TopKDoesNotIsolateThePrompt) {
  at::Tensor scores = at::zeros({1, 10, 10});
  scores.narrow(2, 7, 3).fill_(1.0);
  const at::Tensor mask = Select(scores, {}, {kTopK, 0.21, 7});  // 3 of 10
  EXPECT_TRUE(mask.narrow(2, 7, 3).all().item<bool>());
  EXPECT_FALSE(mask.narrow(2, 0, 7).any().item<bool>());
}

TEST(SelectTest, CompatRuleMayKeepNoPromptBlock) {
  at::Tensor scores = at::zeros({1, 10, 10});
  scores.narrow(2, 7, 3).fill_(1.0);
  const at::Tensor mask = Select(scores, at::rand({1, 10, 3}), {kTopRatioCompat, 0.2, 7});
  EXPECT_EQ(mask.narrow(2, 0, 7).sum().item<int64_t>(), 0);
}

TEST(SelectTest, MassKeepsTheBestBlockAlone) {
  const at::Tensor scores = at::tensor({0.1f, 0.1f, 0.7f, 0.1f}).view({1, 1, 4});
  const at::Tensor mask = Select(scores, {}, {kMass, 0.01});
  EXPECT_TRUE(at::equal(mask.flatten(), at::tensor({0, 0, 1, 0}).to(at::kBool)));
}

TEST(SelectTest, TiesGoToTheLowerIndex) {
  const at::Tensor same = at::full({1, 4, 8}, 0.125);
  const at::Tensor isolated = Select(same, {}, {kTopRatio, 0.5, 4});
  for (const int64_t part : {0, 4}) {
    EXPECT_TRUE(isolated.narrow(2, part, 2).all().item<bool>());
    EXPECT_FALSE(isolated.narrow(2, part + 2, 2).any().item<bool>());
  }
  const auto keeps_first = [&](const Selection& selection, int64_t count) {
    const at::Tensor mask = Select(same, {}, selection);
    return mask.narrow(2, 0, count).all().item<bool>() &&
           !mask.narrow(2, count, 8 - count).any().item<bool>();
  };
  EXPECT_TRUE(keeps_first({kTopK, 0.5}, 4));
  EXPECT_TRUE(keeps_first({kMass, 0.5}, 5));  // dropping 4 would drop half, which is not less
  EXPECT_TRUE(keeps_first({kTopK, 0.125, 0, 0.75}, 6));
}

TEST(SelectTest, ZerosOfEitherSignTie) {
  const at::Tensor scores = at::tensor({-0.0f, 0.0f, -0.0f, 0.0f}).view({1, 1, 4});
  const at::Tensor mask = Select(scores, {}, {kTopK, 0.5});
  EXPECT_TRUE(at::equal(mask.flatten(), at::tensor({1, 1, 0, 0}).to(at::kBool)));
}

TEST(SelectTest, NanRanksBelowEveryNumberAndInfinityAbove) {
  at::Tensor scores = at::rand({2, 65, 65});
  scores.masked_fill_(at::rand(scores.sizes()).lt(0.3), NAN);
  scores[0][0].fill_(NAN);
  scores[1][1].fill_(INFINITY);
  scores[1][2].fill_(-INFINITY);
  for (const std::string_view rule : SelectionRuleNames()) {
    const Selection selection{rule, 0.4, 20, 0.0};
    const at::Tensor generation = scores.narrow(2, 20, 45).contiguous();
    EXPECT_TRUE(at::equal(Select(scores, generation, selection),
                          reference::SelectBlocks(scores, generation, selection)))
        << rule;
  }
  const at::Tensor mask = Select(scores, {}, {kTopK, 0.4});
  EXPECT_TRUE(mask.sum(-1).eq(26).all().item<bool>());
  // With at most 26 numbers in a row all of them are kept before any NaN.
  const at::Tensor numbers = scores.isnan().logical_not();
  EXPECT_FALSE(numbers.logical_and(mask.logical_not())
                   .any(-1)
                   .logical_and(numbers.sum(-1).le(26))
                   .any()
                   .item<bool>());
  EXPECT_TRUE(Select(at::full({1, 2, 40}, NAN), {}, {kMass, 0.5, 0, 1.0}).all().item<bool>());
}

TEST(MaskStatisticsTest, MatchReferenceAndWeighTheShortLastBlock) {
  at::manual_seed(4);
  for (const int64_t tokens : {1, 64, 65, 200, 1000, 4100}) {
    const int64_t blocks = BlockCount(tokens, 64);
    const at::Tensor mass = at::softmax(at::randn({3, blocks, blocks}), -1);
    const at::Tensor mask = at::rand({3, blocks, blocks}).lt(0.5);
    const at::Tensor words = reference::PackMask(mask);
    const MaskStatistics kernel = ComputeMaskStatistics(words, mass, tokens, 64);
    const MaskStatistics plain = reference::ComputeMaskStatistics(mask, mass, tokens, 64);
    EXPECT_TRUE(at::equal(kernel.kept, plain.kept));
    EXPECT_TRUE(at::equal(CountKeptBlocks(words, 3), plain.kept));
    EXPECT_LE(testing::MaxError(kernel.retained, plain.retained), 1e-12);
  }
}

TEST(MaskStatisticsTest, BitsBeyondTheLastKeyBlockAreNotFollowed) {
  const at::Tensor mass = at::full({1, 3, 3}, 1.0 / 3);
  const MaskStatistics statistics =
      ComputeMaskStatistics(at::full({3}, -1, at::kInt), mass, 3 * 32, 32);
  EXPECT_EQ(statistics.kept.item<int64_t>(), 9);
  EXPECT_NEAR(statistics.retained.item<double>(), 1.0, 1e-6);
}

class SampledMass : public ::testing::TestWithParam<std::tuple<int64_t, int64_t, at::ScalarType>> {
};

TEST_P(SampledMass, OfAllQueriesIsTheRetainedMass) {
  const auto [tokens, kv_heads, dtype] = GetParam();
  at::manual_seed(7);
  const int64_t blocks = BlockCount(tokens, 32);
  const at::Tensor q = (at::randn({tokens, 4, 32}) * 2).to(dtype);
  const at::Tensor k = at::randn({tokens, kv_heads, 32}).to(dtype);
  const at::Tensor mask = at::rand({4, blocks, blocks}).lt(0.5);
  const at::Tensor words = reference::PackMask(mask);
  const at::Tensor mass = reference::PooledMass(q, k, 32, 1 / std::sqrt(32.0), 0);
  const at::Tensor all = at::arange(tokens, at::kLong);
  EXPECT_LE(testing::MaxError(SampleRetainedMass(q, k, words, all, 32),
                              ComputeMaskStatistics(words, mass, tokens, 32).retained),
            1e-5);
  const at::Tensor some = at::randint(tokens, {5}, at::kLong);
  EXPECT_LE(testing::MaxError(SampleRetainedMass(q, k, words, some, 32),
                              reference::SampleRetainedMass(q, k, mask, some, 32)),
            1e-5);
}

INSTANTIATE_TEST_SUITE_P(Grid, SampledMass,
                         ::testing::Combine(::testing::Values(1, 32, 33, 257),
                                            ::testing::Values(1, 2, 4),
                                            ::testing::Values(at::kFloat, at::kBFloat16)));

// What a call throws, or "accepted".
template <class Call>
std::string Message(const Call& call) {
  try {
    call();
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "accepted";
}

TEST(SelectChecksTest, ErrorsNameArgumentValueAndLimit) {
  const at::Tensor scores = at::rand({1, 4, 4});
  const auto message = [&](const at::Tensor& generation, const Selection& selection) {
    return Message([&] { Select(scores, generation, selection); });
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(message({}, {kTopRatio, 0.5, 2}), "accepted");
  EXPECT_THAT(message({}, {"best", 0.5, 2}),
              HasSubstr("rule is best, must be one of top_ratio, top_ratio_compat, top_k, mass"));
  EXPECT_THAT(message({}, {kTopRatio, 0.0, 2}), HasSubstr("budget is 0, must be in (0, 1]"));
  EXPECT_THAT(message({}, {kTopRatio, NAN, 2}), HasSubstr("budget is nan, must be in (0, 1]"));
  EXPECT_THAT(message({}, {kMass, 0.5, 0, 1.5}), HasSubstr("min_mass is 1.5, must be in [0, 1]"));
  EXPECT_THAT(message({}, {kMass, 0.5, 0, NAN}), HasSubstr("min_mass is nan, must be in [0, 1]"));
  EXPECT_THAT(message({}, {kTopRatio, 0.5, 4}),
              HasSubstr("first_generation_block is 4, must be in [0, 3]"));
  EXPECT_THAT(message({}, {kTopRatioCompat, 0.5, 2}), HasSubstr("generation_scores is needed"));
  EXPECT_THAT(message(at::rand({1, 4, 3}), {kTopRatioCompat, 0.5, 2}),
              HasSubstr("generation_scores is [1, 4, 3], must be contiguous [1, 4, 2]"));
}

TEST(SelectChecksTest, MisfitMasksAreRefused) {
  using ::testing::HasSubstr;
  const at::Tensor scores = at::rand({1, 4, 4});
  const at::Tensor five = at::zeros({5}, at::kInt);
  const std::string limit = "mask_words is Int of 5 elements, must be contiguous int32 of 4 words";
  EXPECT_THAT(Message([&] { SelectBlocks(five, scores, {}, {kMass, 0.5}); }), HasSubstr(limit));
  EXPECT_THAT(Message([&] { ComputeMaskStatistics(five, scores, 4 * 64, 64); }), HasSubstr(limit));
  EXPECT_THAT(Message([&] { ComputeMaskStatistics(five, scores, 1000, 64); }),
              HasSubstr("mass is [1, 4, 4], must be contiguous [heads, 16, 16]"));
  EXPECT_THAT(Message([&] { CountKeptBlocks(five, 2); }),
              HasSubstr("heads is 2, must divide the 5 words"));
  EXPECT_THAT(Message([&] { CountKeptBlocks(five, 0); }), HasSubstr("heads is 0"));
}

TEST(SelectChecksTest, SampledQueriesMustBePositions) {
  const at::Tensor q = at::randn({40, 2, 16});
  const at::Tensor words = at::zeros({2 * 2}, at::kInt);
  const auto message = [&](const at::Tensor& queries) {
    return Message([&] { SampleRetainedMass(q, q, words, queries, 32); });
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(message(at::tensor({39}, at::kLong)), "accepted");
  EXPECT_THAT(message(at::tensor({40}, at::kLong)), HasSubstr("queries must hold positions"));
  EXPECT_THAT(message(at::tensor({-1}, at::kLong)), HasSubstr("queries must hold positions"));
  EXPECT_THAT(message(at::empty({0}, at::kLong)), HasSubstr("queries must be int64"));
}

}  // namespace
}  // namespace sparsed::kernels
