// SPDX-License-Identifier: Apache-2.0
#include "kernels/reorder.h"

#include <cmath>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "kernels/reference/reference.h"
#include "tests/kernels/cuda/compare.h"
#include "tests/support/gpu.h"

namespace sparsed::kernels {
namespace {

using testing::OnGpu;
using testing::SameBits;

class CudaNormOrderGrid : public testing::GpuTest, public ::testing::WithParamInterface<int64_t> {};

INSTANTIATE_TEST_SUITE_P(Tokens, CudaNormOrderGrid,
                         ::testing::Values(1, 2, 31, 127, 128, 129, 1000, 4096, 16389));

void ExpectOrderOfReference(int64_t tokens, int64_t heads, at::ScalarType dtype) {
  const at::Tensor packed = at::randn({tokens, heads + 2, 40}).to(dtype);
  for (const int64_t shift : {0, 1}) {
    const at::Tensor x = packed.narrow(1, 1, heads).narrow(2, shift, 32);
    const at::Tensor on_gpu = OnGpu(packed).narrow(1, 1, heads).narrow(2, shift, 32);
    for (const int64_t window : {0, 1, 128, 512}) {
      const at::Tensor order = NormOrder(on_gpu, window);
      // A window of one token leaves every order as it is; the reference takes a sort for each.
      const at::Tensor expected = window == 1 ? at::arange(tokens, at::kInt).expand({heads, tokens})
                                              : reference::NormOrder(x, window);
      EXPECT_TRUE(at::equal(order.cpu(), expected)) << "window " << window;
      EXPECT_TRUE(SameBits(order, NormOrder(on_gpu, window)));
    }
  }
}

TEST_P(CudaNormOrderGrid, MatchesReferenceInEveryTypeAndStride) {
  at::manual_seed(1);
  for (const int64_t heads : {1, 4, 7}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      SCOPED_TRACE(::testing::Message() << "heads " << heads << " " << dtype);
      ExpectOrderOfReference(GetParam(), heads, dtype);
    }
  }
}

class CudaNormOrder : public testing::GpuTest {};

TEST_F(CudaNormOrder, EqualNormsKeepTheirOrder) {
  at::manual_seed(2);
  const at::Tensor signs = at::randint(2, {5000, 2, 8}, at::kFloat) * 2 - 1;
  const at::Tensor expected = at::arange(5000, at::kInt).expand({2, 5000});
  EXPECT_TRUE(at::equal(NormOrder(OnGpu(signs), 0).cpu(), expected));
  EXPECT_TRUE(at::equal(NormOrder(OnGpu(signs), 128).cpu(), expected));
}

TEST_F(CudaNormOrder, NanComesLastAfterInfinityAndInOrder) {
  at::Tensor x = at::rand({8, 1, 4});
  x[0][0][1] = NAN;
  x[1].fill_(INFINITY);
  x[2][0][0] = -NAN;
  const at::Tensor order = NormOrder(OnGpu(x), 4)[0].cpu();
  EXPECT_EQ(order[0].item<int>(), 3);
  EXPECT_EQ(order[1].item<int>(), 1);
  EXPECT_EQ(order[2].item<int>(), 0);
  EXPECT_EQ(order[3].item<int>(), 2);
}

class CudaMoveRows : public testing::GpuTest, public ::testing::WithParamInterface<int64_t> {};

INSTANTIATE_TEST_SUITE_P(Tokens, CudaMoveRows,
                         ::testing::Values(1, 2, 31, 127, 128, 129, 1000, 4096));

at::Tensor RandomOrder(int64_t heads, int64_t tokens) {
  return at::rand({heads, tokens}).argsort(1, false).to(at::kInt);
}

// Moves the part of `typed` [tokens, heads + 1, head_dim + 16] that starts `shift` channels in.
void ExpectMovesOfReference(const at::Tensor& typed, int64_t shift, const at::Tensor& order) {
  const int64_t heads = typed.size(1) - 1;
  const int64_t head_dim = typed.size(2) - 16;
  const at::Tensor x = typed.narrow(1, 1, heads).narrow(2, shift, head_dim);
  const at::Tensor on_gpu = OnGpu(typed).narrow(1, 1, heads).narrow(2, shift, head_dim);
  const at::Tensor wide_out = at::zeros_like(OnGpu(typed));
  const at::Tensor out = wide_out.narrow(1, 0, heads).narrow(2, 0, head_dim);
  GatherRows(out, on_gpu, OnGpu(order));
  EXPECT_TRUE(SameBits(out, reference::GatherRows(x, order)));
  ScatterRows(out, on_gpu, OnGpu(order));
  EXPECT_TRUE(SameBits(out, reference::ScatterRows(x.contiguous(), order)));
  EXPECT_FALSE(wide_out.narrow(1, heads, 1).any().item<bool>()) << "wrote into another head";
  EXPECT_FALSE(wide_out.narrow(2, head_dim, 16).any().item<bool>()) << "wrote past a row";
}

TEST_P(CudaMoveRows, MatchReferenceInEveryTypeAndStride) {
  at::manual_seed(3);
  for (const int64_t heads : {1, 4, 7}) {
    for (const int64_t head_dim : {1, 2, 33, 128}) {
      const at::Tensor packed = at::randn({GetParam(), heads + 1, head_dim + 16});
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
        SCOPED_TRACE(::testing::Message() << heads << " x " << head_dim << " " << dtype);
        ExpectMovesOfReference(packed.to(dtype), 0, RandomOrder(1, GetParam()));
        ExpectMovesOfReference(packed.to(dtype), 1, RandomOrder(1, GetParam()));
        ExpectMovesOfReference(packed.to(dtype), 0, RandomOrder(heads, GetParam()));
        ExpectMovesOfReference(packed.to(dtype), 1, RandomOrder(heads, GetParam()));
      }
    }
  }
}

class CudaReorder : public testing::GpuTest {};

TEST_F(CudaReorder, PlacesThatDoNotExistAreLeftAlone) {
  const at::Tensor x = OnGpu(at::rand({3, 1, 8}));
  for (const bool gather : {true, false}) {
    const at::Tensor out = at::zeros_like(x);
    const at::Tensor order = OnGpu(at::tensor({2, -1, 3}, at::kInt).view({1, 3}));
    if (gather) {
      GatherRows(out, x, order);
    } else {
      ScatterRows(out, x, order);
    }
    EXPECT_TRUE(at::equal(out[gather ? 0 : 2], x[gather ? 2 : 0]));
    EXPECT_FALSE(out[1].any().item<bool>());
    EXPECT_FALSE(out[gather ? 2 : 0].any().item<bool>());
  }
}

TEST_F(CudaReorder, OffsetsBeyond32BitsAreRight) {
  constexpr int64_t kTokens = 140000;  // 140000 * 128 * 128 > 2^31 elements
  if (!testing::GpuHasFree(int64_t{11} << 30)) GTEST_SKIP() << "needs 11 GiB of GPU memory";
  const at::TensorOptions options = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor x = at::empty({kTokens, 128, 128}, options).uniform_();
  const at::Tensor out = at::zeros_like(x);
  const at::Tensor order =
      at::arange(kTokens - 1, -1, -1, options.dtype(at::kInt)).view({1, kTokens});
  GatherRows(out, x, order);
  EXPECT_TRUE(at::equal(out[kTokens - 1], x[0]));
  EXPECT_TRUE(at::equal(out[0], x[kTokens - 1]));
}

}  // namespace
}  // namespace sparsed::kernels
