// SPDX-License-Identifier: Apache-2.0
#include "kernels/reorder.h"

#include <cmath>
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "kernels/reference/reference.h"
#include "tests/support/tensors.h"

namespace sparsed::kernels {
namespace {

// tokens, window
class NormOrderGrid : public ::testing::TestWithParam<std::tuple<int64_t, int64_t>> {};

TEST_P(NormOrderGrid, IsAPermutationInsideItsWindowsByAscendingNorm) {
  const auto [tokens, window] = GetParam();
  at::manual_seed(1);
  const at::Tensor x = at::randn({tokens, 5, 16}).narrow(1, 1, 3);
  const at::Tensor order = NormOrder(x, window);
  ASSERT_EQ(order.scalar_type(), at::kInt);
  const at::Tensor wide = order.to(at::kLong);
  const at::Tensor places = at::arange(tokens, at::kLong).expand({3, tokens});
  EXPECT_TRUE(at::equal(std::get<0>(wide.sort(-1)), places));
  const int64_t size = window == 0 ? tokens : window;
  EXPECT_TRUE(at::equal(at::floor_divide(wide, size), at::floor_divide(places, size)));
  const at::Tensor norms = x.to(at::kDouble).square().sum(2).sqrt().to(at::kFloat).t();
  const at::Tensor sorted = norms.gather(1, wide);
  for (const at::Tensor& part : sorted.split(size, 1)) {
    EXPECT_TRUE(part.narrow(1, 1, part.size(1) - 1)
                    .ge(part.narrow(1, 0, part.size(1) - 1))
                    .all()
                    .item<bool>());
  }
  EXPECT_TRUE(at::equal(order, reference::NormOrder(x, window)));
}

INSTANTIATE_TEST_SUITE_P(Shapes, NormOrderGrid,
                         ::testing::Combine(::testing::Values(1, 2, 127, 128, 129, 4095),
                                            ::testing::Values(0, 1, 128, 512)));

TEST(NormOrderTest, EqualNormsKeepTheirOrder) {
  at::manual_seed(2);
  const at::Tensor order = NormOrder(at::ones({300, 2, 8}), 0);
  EXPECT_TRUE(at::equal(order, at::arange(300, at::kInt).expand({2, 300})));
  // Signs do not change a norm.
  const at::Tensor signs = at::randint(2, {300, 2, 8}, at::kFloat) * 2 - 1;
  EXPECT_TRUE(at::equal(NormOrder(signs, 128), order));
}

TEST(NormOrderTest, NanNormsComeLastInTheirWindow) {
  at::Tensor x = at::rand({8, 1, 4});
  x[1].fill_(NAN);
  x[2].fill_(INFINITY);
  const at::Tensor order = NormOrder(x, 4)[0];
  EXPECT_EQ(order[3].item<int>(), 1);
  EXPECT_EQ(order[2].item<int>(), 2);
}

TEST(NormOrderTest, Bfloat16SortsAsItsExactValues) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({500, 2, 64}).to(at::kBFloat16);
  EXPECT_TRUE(at::equal(NormOrder(x, 256), NormOrder(x.to(at::kFloat), 256)));
}

TEST(FractalOrderTest, WalksTilesAndThenRowsInsideATile) {
  const int64_t t = 2;
  const int64_t h = 16;
  const int64_t w = 24;
  const at::Tensor order = FractalOrder(t, h, w);
  ASSERT_EQ(order.sizes(), (std::vector<int64_t>{1, t * h * w}));
  int64_t place = 0;
  for (int64_t frame = 0; frame < t; ++frame) {
    for (int64_t tile_y = 0; tile_y < h / 8; ++tile_y) {
      for (int64_t tile_x = 0; tile_x < w / 8; ++tile_x) {
        for (int64_t y = 0; y < 8; ++y) {
          for (int64_t x = 0; x < 8; ++x, ++place) {
            ASSERT_EQ(order[0][place].item<int>(),
                      (frame * h + tile_y * 8 + y) * w + tile_x * 8 + x);
          }
        }
      }
    }
  }
}

class MoveRows : public ::testing::TestWithParam<std::tuple<int64_t, at::ScalarType, bool>> {};

TEST_P(MoveRows, MatchReferenceAndUndoEachOther) {
  const auto [tokens, dtype, shared] = GetParam();
  at::manual_seed(4);
  const at::Tensor x = at::randn({tokens, 9, 24}).to(dtype).narrow(1, 3, 3);
  const at::Tensor order = shared ? at::randperm(tokens, at::kInt).unsqueeze(0)
                                  : at::rand({3, tokens}).argsort(/*dim=*/int64_t{1}).to(at::kInt);
  at::Tensor gathered = at::empty({tokens, 5, 24}, x.options()).narrow(1, 1, 3);
  GatherRows(gathered, x, order);
  EXPECT_TRUE(at::equal(gathered, reference::GatherRows(x, order)));
  at::Tensor back = at::empty_like(x);
  ScatterRows(back, gathered, order);
  EXPECT_TRUE(at::equal(back, x));
  ScatterRows(back, x, order);
  EXPECT_TRUE(at::equal(back, reference::ScatterRows(x, order)));
}

INSTANTIATE_TEST_SUITE_P(Grid, MoveRows,
                         ::testing::Combine(::testing::Values(1, 2, 127, 128, 129, 4095),
                                            ::testing::Values(at::kFloat, at::kBFloat16),
                                            ::testing::Bool()));

TEST(ReorderChecksTest, ErrorsNameArgumentValueAndLimit) {
  const auto message = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const c10::ValueError& error) {
      return error.what_without_backtrace();
    }
    return "accepted";
  };
  using ::testing::HasSubstr;
  const at::Tensor x = at::randn({16, 2, 8});
  const at::Tensor order = at::arange(16, at::kInt).unsqueeze(0);
  at::Tensor out = at::empty_like(x);
  EXPECT_THAT(message([&] { NormOrder(x, -1); }), HasSubstr("window_tokens is -1, must be in [0,"));
  EXPECT_THAT(message([&] { FractalOrder(1, 12, 8); }),
              HasSubstr("h is 12, must be a multiple of 8"));
  EXPECT_THAT(message([&] { FractalOrder(0, 8, 8); }), HasSubstr("t is 0, must be in [1,"));
  EXPECT_THAT(message([&] { FractalOrder(1 << 20, 1 << 20, 1 << 20); }),
              HasSubstr("t * h * w is 1048576 * 1048576 * 1048576, must be at most"));
  EXPECT_EQ(message([&] { GatherRows(out, x, order); }), "accepted");
  EXPECT_THAT(message([&] { GatherRows(out, x, order + 1); }),
              HasSubstr("order must hold tokens in [0, 15]"));
  EXPECT_THAT(message([&] { ScatterRows(out, x, order - 1); }),
              HasSubstr("order must hold tokens in [0, 15]"));
  EXPECT_THAT(message([&] { GatherRows(x, x, order); }), HasSubstr("out must not overlap x"));
  EXPECT_THAT(message([&] {
                GatherRows(out, x, order.expand({3, 16}).contiguous());
              }),
              HasSubstr("order is Int [3, 16], must be contiguous int32 [1 or 2, 16]"));
  EXPECT_THAT(message([&] { GatherRows(out.to(at::kBFloat16), x, order); }),
              HasSubstr("out must have x's shape and dtype"));
}

}  // namespace
}  // namespace sparsed::kernels
