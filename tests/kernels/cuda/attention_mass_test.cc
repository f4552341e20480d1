// SPDX-License-Identifier: Apache-2.0
// attention_with_mass, pooled_mass and sample_retained_mass on CUDA against reference/ in fp64.
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "kernels/attention.h"
#include "kernels/block_mask.h"
#include "kernels/select.h"
#include "tests/kernels/cuda/attention_cases.h"
#include "tests/support/gpu.h"
#include "tests/support/packed_rows.h"

namespace sparsed::kernels {
namespace {

using testing::CheckMass;
using testing::DenseRows;
using testing::Heads;
using testing::Longs;
using testing::Part;
using testing::Qkv;
using testing::RandomMask;
using testing::RandomQkv;
using testing::SetMask;
using testing::ToGpu;

double HeadScale(int64_t head_dim) { return 1 / std::sqrt(static_cast<double>(head_dim)); }

class CudaMass : public testing::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    at::manual_seed(17);
  }
};

//                           length, block
using MassCase = std::tuple<int64_t, int64_t>;
class CudaMassGrid : public CudaMass, public ::testing::WithParamInterface<MassCase> {};

// A row without mass, then the row with it, at an odd place in the mass.
TEST_P(CudaMassGrid, FusedMassMatchesReferenceAndSumsToOne) {
  const auto [length, block] = GetParam();
  const int64_t other = 77;
  const int64_t blocks = BlockCount(length, block);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kFloat}) {
    for (const int64_t head_dim : {64, 128, 80}) {
      SCOPED_TRACE(::testing::Message() << type << " head_dim " << head_dim);
      const Qkv x = RandomQkv(other + length, {4, 2}, head_dim, type);
      const PackedRows rows = ToGpu(DenseRows({other, length}, block));
      const int64_t cells = 4 * blocks * blocks;
      const AttentionMassResult result =
          AttentionWithMass(x.q, x.k, x.v, rows, Longs({-1, 5}), 5 + cells + 3);
      testing::ExpectAttention({result.out, result.lse}, testing::Expect(x, rows));
      const at::Tensor mass = result.mass.narrow(0, 5, cells).view({4, blocks, blocks});
      const Qkv row = Part(x, other, length);
      CheckMass(mass, row.q, row.k, block, HeadScale(head_dim), 0);
      EXPECT_TRUE(at::allclose(mass.sum(2), at::ones_like(mass.sum(2)), 0, 1e-4));
      EXPECT_TRUE(result.mass.narrow(0, 0, 5).eq(0).all().item<bool>());
      EXPECT_TRUE(result.mass.narrow(0, 5 + cells, 3).eq(0).all().item<bool>());
    }
  }
}

TEST_P(CudaMassGrid, PooledMassMatchesReferenceAtAnyScaleAndStart) {
  const auto [length, block] = GetParam();
  const int64_t last = BlockCount(length, block) - 1;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kFloat}) {
    for (const int64_t head_dim : {64, 128, 20}) {
      const Qkv x = RandomQkv(length, {4, 1}, head_dim, type);
      for (const double scale : {0.5, HeadScale(head_dim), -0.1}) {
        for (const int64_t first : {int64_t{0}, last / 2, last}) {
          SCOPED_TRACE(::testing::Message() << type << " head_dim " << head_dim << " scale "
                                            << scale << " first key block " << first);
          CheckMass(PooledMass(x.q, x.k, block, scale, first), x.q, x.k, block, scale, first);
        }
      }
    }
  }
}

std::string MassName(const ::testing::TestParamInfo<MassCase>& test_case) {
  const auto& [length, block] = test_case.param;
  return (::testing::Message() << "L" << length << "_b" << block).GetString();
}

INSTANTIATE_TEST_SUITE_P(CudaParity, CudaMassGrid,
                         ::testing::Combine(::testing::Values(1, 33, 64, 127, 128, 129, 500, 1025),
                                            ::testing::Values(32, 64, 128, 256)),
                         MassName);
INSTANTIATE_TEST_SUITE_P(CudaLong, CudaMassGrid,
                         ::testing::Combine(::testing::Values(4101), ::testing::Values(64, 128)),
                         MassName);

class CudaMassType : public CudaMass, public ::testing::WithParamInterface<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(CudaTypes, CudaMassType,
                         ::testing::Values(at::kBFloat16, at::kHalf, at::kFloat),
                         [](const auto& test) { return std::string(c10::toString(test.param)); });

// Rows with mass among rows without, sparse ones and other block sizes, masses in another order.
TEST_P(CudaMassType, MixedRowsGiveTheMassOfEachRow) {
  const std::vector<int64_t> lengths = {300, 129, 64, 513};
  PackedRows rows = DenseRows(lengths, 128);
  SetMask(1, RandomMask(4, 129, 64, 0.5), 64, &rows);
  rows.block_tokens[0] = 64;
  rows.block_tokens[2] = 32;
  rows = ToGpu(rows);
  const int64_t cells_0 = 4 * 5 * 5;
  const int64_t cells_2 = 4 * 2 * 2;
  const int64_t cells_3 = 4 * 5 * 5;
  const Qkv x = RandomQkv(300 + 129 + 64 + 513, {4, 2}, 128, GetParam());
  const AttentionMassResult result = AttentionWithMass(
      x.q, x.k, x.v, rows, Longs({cells_3, -1, cells_3 + cells_0, 0}), cells_0 + cells_2 + cells_3);
  testing::ExpectAttention({result.out, result.lse}, testing::Expect(x, rows));
  const auto check = [&](int64_t begin, int64_t length, int64_t block, int64_t offset) {
    const int64_t blocks = BlockCount(length, block);
    const Qkv row = Part(x, begin, length);
    CheckMass(result.mass.narrow(0, offset, 4 * blocks * blocks).view({4, blocks, blocks}), row.q,
              row.k, block, HeadScale(128), 0);
  };
  check(0, 300, 64, cells_3);
  check(429, 64, 32, cells_3 + cells_0);
  check(493, 513, 128, 0);
}

TEST_P(CudaMassType, MassOfOneRowDoesNotChangeTheBitsOfAnother) {
  const PackedRows rows = ToGpu(DenseRows({257, 1000}, 64));
  const Qkv x = RandomQkv(1257, {4, 4}, 64, GetParam());
  const AttentionResult plain = Attention(x.q, x.k, x.v, rows);
  const AttentionMassResult with =
      AttentionWithMass(x.q, x.k, x.v, rows, Longs({-1, 0}), 4 * 16 * 16);
  EXPECT_TRUE(at::equal(plain.out.narrow(0, 0, 257), with.out.narrow(0, 0, 257)));
  EXPECT_TRUE(at::equal(plain.lse.narrow(1, 0, 257), with.lse.narrow(1, 0, 257)));
}

TEST_P(CudaMassType, RunsAndBatchesGiveEqualBits) {
  const Qkv x = RandomQkv(100 + 777, {4, 2}, 128, GetParam());
  const int64_t cells = 4 * 7 * 7;
  const PackedRows packed = ToGpu(DenseRows({100, 777}, 128));
  const at::Tensor first = AttentionWithMass(x.q, x.k, x.v, packed, Longs({-1, 0}), cells).mass;
  for (int run = 0; run < 3; ++run) {
    EXPECT_TRUE(
        at::equal(first, AttentionWithMass(x.q, x.k, x.v, packed, Longs({-1, 0}), cells).mass));
  }
  const Qkv row = Part(x, 100, 777);
  const PackedRows alone = ToGpu(DenseRows({777}, 128));
  EXPECT_TRUE(
      at::equal(first, AttentionWithMass(row.q, row.k, row.v, alone, Longs({0}), cells).mass));
}

TEST_P(CudaMassType, NanStaysInItsRowsMass) {
  const Qkv x = RandomQkv(300 + 300, {2, 1}, 64, GetParam());
  x.k.narrow(0, 0, 300).fill_(NAN);
  const int64_t cells = 2 * 5 * 5;
  const at::Tensor mass = AttentionWithMass(x.q, x.k, x.v, ToGpu(DenseRows({300, 300}, 64)),
                                            Longs({cells, 0}), 2 * cells)
                              .mass;
  const Qkv clean = Part(x, 300, 300);
  CheckMass(mass.narrow(0, 0, cells).view({2, 5, 5}), clean.q, clean.k, 64, HeadScale(64), 0);
  EXPECT_TRUE(mass.narrow(0, cells, cells).isnan().all().item<bool>());
}

// The last query block is short: what its tile holds beyond the row must not count, even against
// keys with infinities, where 0 * inf would be NaN.
TEST_P(CudaMassType, QueriesBeyondTheRowDoNotCount) {
  const Qkv x = RandomQkv(65, {1, 1}, 64, GetParam());
  x.q.abs_().add_(0.1);
  x.k[3].fill_(-INFINITY);  // a logit of -inf: a weight of zero
  const at::Tensor mass = PooledMass(x.q, x.k, 64, HeadScale(64), 0);
  EXPECT_TRUE(mass.isfinite().all().item<bool>());
  EXPECT_TRUE(at::allclose(mass.sum(2), at::ones_like(mass.sum(2)), 0, 1e-4));
}

TEST_P(CudaMassType, AcceptsStridedTensors) {
  const at::Tensor fused = at::randn({300, 8, 128}, testing::OnGpu(at::kFloat)).to(GetParam());
  const at::Tensor q = fused.narrow(1, 0, 4);
  const at::Tensor k = fused.narrow(1, 4, 2);
  CheckMass(PooledMass(q, k, 64, 0.2, 1), q, k, 64, 0.2, 1);
}

TEST_P(CudaMassType, LargeLogitsGiveOneBlockAllMass) {
  Qkv x = RandomQkv(500, {2, 1}, 128, GetParam());
  x.q *= 16;
  x.k *= 16;
  CheckMass(PooledMass(x.q, x.k, 64, HeadScale(128), 0), x.q, x.k, 64, HeadScale(128), 0);
}

class CudaSample : public CudaMassType {};
INSTANTIATE_TEST_SUITE_P(CudaTypes, CudaSample,
                         ::testing::Values(at::kBFloat16, at::kHalf, at::kFloat),
                         [](const auto& test) { return std::string(c10::toString(test.param)); });

// Kept mass is a share of a query's mass: off by twice its logit's error and by sums, at most.
TEST_P(CudaSample, RetainedMassMatchesReference) {
  for (const int64_t length : {1, 65, 128, 1000, 4101}) {
    for (const int64_t head_dim : {64, 128, 20}) {
      for (const int64_t block : {32, 64, 128, 256}) {
        SCOPED_TRACE(::testing::Message()
                     << "length " << length << " head_dim " << head_dim << " block " << block);
        const Qkv x = RandomQkv(length, {4, 2}, head_dim, GetParam());
        const at::Tensor mask = RandomMask(4, length, block, 0.3).to(at::kCUDA);
        const at::Tensor queries = at::randint(length, {75}, testing::OnGpu(at::kLong));
        const at::Tensor got =
            SampleRetainedMass(x.q, x.k, reference::PackMask(mask), queries, block);
        const at::Tensor want = reference::SampleRetainedMass(
            x.q.to(at::kDouble), x.k.to(at::kDouble), mask, queries, block);
        EXPECT_EQ(got.scalar_type(), at::kDouble);
        const at::Tensor logit_error =
            testing::LogitMagnitudes(x.q, x.k, Longs({0, length}), HeadScale(head_dim)).max() *
            testing::LogitError(GetParam(), head_dim);
        const double sums = 2 * testing::SumError(length) + std::ldexp(1.0, -21);
        testing::ExpectWithin(got, want, at::expm1(logit_error * 4) + sums, "retained");
      }
    }
  }
}

TEST_P(CudaSample, FullMaskRetainsAll) {
  const Qkv x = RandomQkv(300, {4, 4}, 64, GetParam());
  const at::Tensor words = reference::PackMask(at::ones({4, 5, 5}, at::kBool)).to(at::kCUDA);
  const at::Tensor queries = at::arange(299, -1, -1, testing::OnGpu(at::kLong));
  EXPECT_TRUE(SampleRetainedMass(x.q, x.k, words, queries, 64).eq(1).all().item<bool>());
}

TEST_P(CudaSample, RunsGiveEqualBits) {
  const Qkv x = RandomQkv(1000, {4, 2}, 64, GetParam());
  const at::Tensor words = reference::PackMask(RandomMask(4, 1000, 64, 0.3)).to(at::kCUDA);
  const at::Tensor queries = at::arange(0, 1000, 7, testing::OnGpu(at::kLong));
  const at::Tensor first = SampleRetainedMass(x.q, x.k, words, queries, 64);
  EXPECT_TRUE(at::equal(first, SampleRetainedMass(x.q, x.k, words, queries, 64)));
}

TEST_P(CudaSample, PositionOutsideTheRowGivesNan) {
  const Qkv x = RandomQkv(100, {2, 2}, 64, GetParam());
  const at::Tensor words = reference::PackMask(at::ones({2, 2, 2}, at::kBool)).to(at::kCUDA);
  for (const int64_t position : {-1, 100}) {
    const at::Tensor queries = Longs({3, position}).to(at::kCUDA);
    EXPECT_TRUE(SampleRetainedMass(x.q, x.k, words, queries, 64).isnan().all().item<bool>());
  }
}

TEST_F(CudaMass, WrongArgumentsNameTheArgument) {
  const Qkv x = RandomQkv(64, {4, 2}, 32, at::kBFloat16);
  const auto message = [&](const auto& call) -> std::string {
    try {
      call();
    } catch (const c10::ValueError& error) {
      return error.what_without_backtrace();
    }
    return "accepted";
  };
  using ::testing::HasSubstr;
  const PackedRows rows = ToGpu(DenseRows({64}, 32));
  EXPECT_THAT(message([&] { AttentionWithMass(x.q, x.k, x.v, rows, Longs({1}), 16); }),
              HasSubstr("mass_offsets must leave room"));
  EXPECT_THAT(message([&] { PooledMass(x.q, x.k, 48, 1, 0); }), HasSubstr("block_tokens is 48"));
  EXPECT_THAT(message([&] { PooledMass(x.q, x.k, 32, 1, 2); }),
              HasSubstr("first_key_block is 2, must be in [0, 1]"));
  const at::Tensor queries = Longs({0}).to(at::kCUDA);
  EXPECT_THAT(message([&] {
                SampleRetainedMass(x.q, x.k, at::zeros({7}, testing::OnGpu(at::kInt)), queries, 32);
              }),
              HasSubstr("mask_words is Int of 7 elements"));
}

}  // namespace
}  // namespace sparsed::kernels
