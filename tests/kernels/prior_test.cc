// SPDX-License-Identifier: Apache-2.0
#include "kernels/prior.h"

#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "kernels/block_mask.h"
#include "kernels/reference/reference.h"
#include "kernels/select.h"

namespace sparsed::kernels {
namespace {

at::Tensor Unpack(const at::Tensor& words, int64_t blocks) {  // -> bool [blocks, blocks]
  return reference::UnpackMask(words, 1, blocks, blocks)[0];
}

class PriorBlocks : public ::testing::TestWithParam<int64_t> {};

TEST_P(PriorBlocks, SinkWindowKeepsSinksAndTheBand) {
  const int64_t blocks = GetParam();
  for (const int64_t sinks : {0, 1, 3, 100}) {
    for (const int64_t window : {0, 1, 2, 100}) {
      const at::Tensor mask = Unpack(SinkWindowMask(blocks, sinks, window), blocks);
      const at::Tensor i = at::arange(blocks, at::kLong).unsqueeze(1);
      const at::Tensor j = i.t();
      EXPECT_TRUE(at::equal(mask, j.lt(sinks).logical_or((i - j).abs().le(window))))
          << sinks << " " << window;
    }
  }
}

TEST_P(PriorBlocks, UnionWithASelectionLosesNoKeptBlock) {
  const int64_t blocks = GetParam();
  at::manual_seed(1);
  const at::Tensor scores = at::softmax(at::randn({2, blocks, blocks}) * 2, -1);
  const at::Tensor prior = SinkWindowMask(blocks, 1, 1);
  const at::Tensor prior_mask = Unpack(prior, blocks);
  for (const std::string_view rule : {kTopRatio, kTopK, kMass}) {
    const at::Tensor words = at::zeros({2, prior.numel()}, at::kInt);
    SelectBlocks(words, scores, {}, {rule, 0.3});
    const at::Tensor selected = reference::UnpackMask(words, 2, blocks, blocks);
    words.bitwise_or_(prior);
    const at::Tensor united = reference::UnpackMask(words, 2, blocks, blocks);
    EXPECT_TRUE(at::equal(united, selected.logical_or(prior_mask))) << rule;
  }
}

INSTANTIATE_TEST_SUITE_P(Blocks, PriorBlocks, ::testing::Values(1, 2, 31, 32, 33, 65));

TEST(StaMaskTest, KeepsTilesWithinTheWindowClippedAtTheBorders) {
  const std::vector<int64_t> tiles = {3, 4, 5};
  const std::vector<int64_t> window = {3, 1, 5};
  const at::Tensor mask = Unpack(StaMask(tiles, window), 60);
  const auto near = [&](int64_t i, int64_t j) {
    return std::abs(i / 20 - j / 20) <= 1 && i / 5 % 4 == j / 5 % 4 && std::abs(i % 5 - j % 5) <= 2;
  };
  for (int64_t i = 0; i < 60; ++i) {
    for (int64_t j = 0; j < 60; ++j) {
      ASSERT_EQ(mask[i][j].item<bool>(), near(i, j)) << i << " " << j;
    }
  }
}

TEST(StaMaskTest, AnEvenWindowActsAsTheNextOddOne) {
  EXPECT_TRUE(at::equal(StaMask({3, 4, 5}, {2, 4, 2}), StaMask({3, 4, 5}, {3, 5, 3})));
}

TEST(StaMaskTest, WindowOneIsTheOwnTileAndAWideOneIsEverything) {
  EXPECT_TRUE(at::equal(Unpack(StaMask({2, 3, 6}, {1, 1, 1}), 36), at::eye(36).to(at::kBool)));
  EXPECT_TRUE(Unpack(StaMask({2, 3, 6}, {99, 99, 99}), 36).all().item<bool>());
}

TEST(PriorTest, OperatorsWithoutTensorsAreCallableThroughTheDispatcher) {
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("sparsed::sta_mask", "")
                      .typed<at::Tensor(at::IntArrayRef, at::IntArrayRef)>();
  EXPECT_TRUE(at::equal(op.call({1, 2, 2}, {1, 1, 3}), StaMask({1, 2, 2}, {1, 1, 3})));
}

TEST(PriorChecksTest, ErrorsNameArgumentValueAndLimit) {
  const auto message = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const c10::ValueError& error) {
      return error.what_without_backtrace();
    }
    return "accepted";
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message([] { SinkWindowMask(0, 1, 1); }), HasSubstr("blocks is 0, must be in [1,"));
  EXPECT_THAT(message([] { SinkWindowMask(4, -1, 1); }), HasSubstr("sinks is -1, must be in [0,"));
  EXPECT_THAT(message([] { SinkWindowMask(4, 1, -1); }), HasSubstr("window is -1, must be in [0,"));
  EXPECT_THAT(message([] {
                StaMask({2, 2}, {1, 1, 1});
              }),
              HasSubstr("tiles has 2 elements, must have 3"));
  EXPECT_THAT(message([] {
                StaMask({2, 2, 2}, {1, 0, 1});
              }),
              HasSubstr("window is 0, must be in [1,"));
  EXPECT_THAT(message([] {
                StaMask({60000, 60000, 60000}, {1, 1, 1});
              }),
              HasSubstr("must be at most 65536"));
}

}  // namespace
}  // namespace sparsed::kernels
