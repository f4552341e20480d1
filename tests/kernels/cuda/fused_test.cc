// SPDX-License-Identifier: Apache-2.0
#include "kernels/fused.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "kernels/reference/reference.h"
#include "tests/kernels/cuda/compare.h"
#include "tests/support/gpu.h"

namespace sparsed::kernels {
namespace {

using testing::IsRounded;
using testing::OnGpu;
using testing::SameBits;

constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kBFloat16, at::kHalf};

at::Tensor Longs(const std::vector<int64_t>& values) {
  return at::tensor(values, at::TensorOptions().dtype(at::kLong));
}

class CudaFusedGrid : public testing::GpuTest, public ::testing::WithParamInterface<int64_t> {
 protected:
  // call(tokens, width, dtype)
  template <class Call>
  static void ForEachBatch(Call call) {
    for (const int64_t tokens : {1, 2, 31, 127, 128, 129, 1000}) {
      for (const at::ScalarType dtype : kDtypes) {
        SCOPED_TRACE(::testing::Message() << tokens << " tokens, " << dtype);
        call(tokens, GetParam(), dtype);
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Widths, CudaFusedGrid, ::testing::Values(1, 2, 8, 33, 384, 1000, 4096));

TEST_P(CudaFusedGrid, RmsNormIsTheReferenceRoundedOnce) {
  at::manual_seed(1);
  ForEachBatch([](int64_t tokens, int64_t width, at::ScalarType dtype) {
    const at::Tensor x = (at::randn({tokens, width}) * 3).to(dtype);
    const at::Tensor weight = at::randn({width}).to(dtype);
    const at::Tensor wide = reference::RmsNorm(x.to(at::kDouble), weight.to(at::kDouble), 1e-5);
    const at::Tensor kernel = RmsNorm(OnGpu(x), OnGpu(weight), 1e-5);
    EXPECT_EQ(kernel.scalar_type(), dtype);
    EXPECT_TRUE(IsRounded(kernel, wide, 1e-6));
    EXPECT_TRUE(SameBits(kernel, RmsNorm(OnGpu(x), OnGpu(weight), 1e-5)));
  });
}

TEST_P(CudaFusedGrid, SiluMulIsTheReferenceRoundedOnce) {
  at::manual_seed(2);
  ForEachBatch([](int64_t tokens, int64_t width, at::ScalarType dtype) {
    const at::Tensor x = (at::randn({tokens, 2 * width}) * 10).to(dtype);
    const at::Tensor wide = reference::SiluMul(x.to(at::kDouble));
    const at::Tensor kernel = SiluMul(OnGpu(x));
    EXPECT_EQ(kernel.scalar_type(), dtype);
    EXPECT_TRUE(IsRounded(kernel, wide, 1e-6));
    EXPECT_TRUE(SameBits(kernel, SiluMul(OnGpu(x))));
  });
}

// Rows and widths that are whole 16-byte accesses, and the same numbers one element further.
TEST_P(CudaFusedGrid, TokenBitsDoNotDependOnPlaceOrAlignment) {
  at::manual_seed(3);
  ForEachBatch([](int64_t tokens, int64_t width, at::ScalarType dtype) {
    const at::Tensor x = OnGpu(at::randn({tokens, 2 * width}).to(dtype));
    const at::Tensor weight = OnGpu(at::randn({2 * width}).to(dtype));
    const at::Tensor shifted =
        at::zeros({tokens, 2 * width + 3}, x.options()).narrow(1, 1, 2 * width);
    shifted.copy_(x);
    const at::Tensor norm = RmsNorm(x, weight, 1e-6);
    const at::Tensor silu = SiluMul(x);
    EXPECT_TRUE(SameBits(norm, RmsNorm(shifted, weight, 1e-6)));
    EXPECT_TRUE(SameBits(silu, SiluMul(shifted)));
    const at::Tensor last = x.narrow(0, tokens - 1, 1).clone();
    EXPECT_TRUE(SameBits(norm.narrow(0, tokens - 1, 1), RmsNorm(last, weight, 1e-6)));
    EXPECT_TRUE(SameBits(silu.narrow(0, tokens - 1, 1), SiluMul(last)));
  });
}

struct Angles {
  at::Tensor cos;
  at::Tensor sin;
};

Angles RandomAngles(int64_t positions, int64_t head_dim) {
  const at::Tensor angles = at::outer(at::arange(positions, at::kFloat), at::rand({head_dim / 2}));
  return {angles.cos(), angles.sin()};
}

class CudaRope : public testing::GpuTest, public ::testing::WithParamInterface<int64_t> {};

INSTANTIATE_TEST_SUITE_P(HeadDims, CudaRope, ::testing::Values(2, 6, 32, 64, 128, 256));

// The heads are a part of a wider tensor that starts `shift` channels in.
void ExpectRopeOfReference(int64_t heads, int64_t head_dim, at::ScalarType dtype, int64_t shift) {
  const Angles angles = RandomAngles(129, head_dim);
  const at::Tensor offsets = Longs({0, 129, 130, 132, 163, 290});
  const at::Tensor packed = at::randn({290, heads + 1, head_dim + 8}).to(dtype);
  const at::Tensor x = packed.narrow(1, 1, heads).narrow(2, shift, head_dim);
  const at::Tensor wide = reference::Rope(x.to(at::kDouble), angles.cos.to(at::kDouble),
                                          angles.sin.to(at::kDouble), offsets);
  const at::Tensor packed_gpu = OnGpu(packed);
  const at::Tensor on_gpu = packed_gpu.narrow(1, 1, heads).narrow(2, shift, head_dim);
  Rope(on_gpu, OnGpu(angles.cos), OnGpu(angles.sin), offsets);
  EXPECT_TRUE(IsRounded(on_gpu, wide, 1e-6));
  x.zero_();
  on_gpu.zero_();
  EXPECT_TRUE(SameBits(packed_gpu, packed)) << "wrote beside x";
}

TEST_P(CudaRope, RestartsAtEachRowInEveryTypeAndStride) {
  at::manual_seed(4);
  for (const int64_t heads : {1, 4, 7, 32}) {
    for (const at::ScalarType dtype : kDtypes) {
      for (const int64_t shift : {0, 1}) {
        SCOPED_TRACE(::testing::Message() << heads << " heads, " << dtype << ", shift " << shift);
        ExpectRopeOfReference(heads, GetParam(), dtype, shift);
      }
    }
  }
}

class CudaFused : public testing::GpuTest {};

// A launch takes 64 rows.
TEST_F(CudaFused, RopeTakesAnyNumberOfRows) {
  at::manual_seed(5);
  const Angles angles = RandomAngles(5, 64);
  for (const int64_t rows : {1, 63, 64, 65, 128, 129, 1000}) {
    const at::Tensor lengths = at::randint(1, 6, {rows}, at::kLong);
    const at::Tensor offsets = at::cat({at::zeros({1}, at::kLong), lengths.cumsum(0)});
    const at::Tensor x = at::randn({offsets[rows].item<int64_t>(), 2, 64});
    const at::Tensor wide = reference::Rope(x.to(at::kDouble), angles.cos.to(at::kDouble),
                                            angles.sin.to(at::kDouble), offsets);
    const at::Tensor on_gpu = OnGpu(x);
    Rope(on_gpu, OnGpu(angles.cos), OnGpu(angles.sin), offsets);
    EXPECT_TRUE(IsRounded(on_gpu, wide, 1e-6)) << rows << " rows";
  }
}

TEST_F(CudaFused, SiluMulIsExactAtTheExtremes) {
  const at::Tensor x = at::tensor({-1000.0f, -88.0f, 0.0f, 1000.0f, 1.0f, 1.0f, 1.0f, 1.0f});
  const at::Tensor out = SiluMul(OnGpu(x.view({1, 8}))).cpu();
  EXPECT_NEAR(out[0][0].item<float>(), 0.0f, 1e-30f);
  EXPECT_NEAR(out[0][1].item<float>(), 0.0f, 1e-30f);
  EXPECT_EQ(out[0][2].item<float>(), 0.0f);
  EXPECT_EQ(out[0][3].item<float>(), 1000.0f);
}

TEST_F(CudaFused, NanAndInfinityStayInTheirToken) {
  at::Tensor x = at::rand({5, 64});
  x[1][3] = NAN;
  x[3][63] = INFINITY;
  const at::Tensor weight = OnGpu(at::ones({64}));
  const at::Tensor bad = RmsNorm(OnGpu(x), weight, 1e-6).isfinite().all(1).cpu();
  EXPECT_TRUE(at::equal(bad, at::tensor({1, 0, 1, 0, 1}).to(at::kBool)));
  const at::Tensor silu = SiluMul(OnGpu(x)).isfinite().all(1).cpu();
  EXPECT_TRUE(at::equal(silu, at::tensor({1, 0, 1, 0, 1}).to(at::kBool)));
}

TEST_F(CudaFused, EmptyBatchesGiveEmptyResults) {
  const at::Tensor x = OnGpu(at::empty({0, 16}));
  EXPECT_EQ(RmsNorm(x, OnGpu(at::ones({16})), 1e-6).sizes(), x.sizes());
  EXPECT_EQ(SiluMul(x).sizes(), (std::vector<int64_t>{0, 8}));
}

TEST_F(CudaFused, ArgumentsOfAnotherDeviceOrTypeAreRefused) {
  const at::Tensor x = OnGpu(at::rand({3, 16}));
  EXPECT_THROW(RmsNorm(x, at::ones({16}), 1e-6), c10::ValueError);
  EXPECT_THROW(RmsNorm(x, OnGpu(at::ones({16}, at::kHalf)), 1e-6), c10::ValueError);
  const at::Tensor angles = at::rand({3, 8});
  EXPECT_THROW(Rope(x.view({3, 1, 16}), angles, angles, Longs({0, 3})), c10::ValueError);
}

TEST_F(CudaFused, OffsetsBeyond32BitsAreRight) {
  constexpr int64_t kTokens = 140000;  // 140000 * 16384 > 2^31 elements
  constexpr int64_t kWidth = 16384;
  if (!testing::GpuHasFree(int64_t{12} << 30)) GTEST_SKIP() << "needs 12 GiB of GPU memory";
  const at::TensorOptions options = at::TensorOptions().device(at::kCUDA).dtype(at::kHalf);
  const at::Tensor x = at::empty({kTokens, kWidth}, options).uniform_();
  const at::Tensor last = x.narrow(0, kTokens - 1, 1).clone();
  const at::Tensor weight = at::ones({kWidth}, options);
  EXPECT_TRUE(
      SameBits(RmsNorm(x, weight, 1e-6).narrow(0, kTokens - 1, 1), RmsNorm(last, weight, 1e-6)));
  EXPECT_TRUE(SameBits(SiluMul(x).narrow(0, kTokens - 1, 1), SiluMul(last)));
}

}  // namespace
}  // namespace sparsed::kernels
