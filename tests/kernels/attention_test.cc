// SPDX-License-Identifier: Apache-2.0
// The CPU attention operators against reference/ in fp64.
#include "kernels/attention.h"

#include <string>
#include <tuple>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "kernels/block_mask.h"
#include "kernels/reference/reference.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tensors.h"

namespace sparsed::kernels {
namespace {

using testing::DenseRows;
using testing::MaxError;
using testing::RandomMask;
using testing::SetMask;

struct Qkv {
  at::Tensor q, k, v;
};

// Logits spread over about +-6, so that softmax is neither flat nor one-hot.
Qkv RandomQkv(int64_t tokens, int64_t heads, int64_t kv_heads, int64_t head_dim) {
  return {at::randn({tokens, heads, head_dim}) * 1.5, at::randn({tokens, kv_heads, head_dim}) * 1.5,
          at::randn({tokens, kv_heads, head_dim})};
}

AttentionResult Wide(const Qkv& x, const PackedRows& rows) {
  return reference::Attention(x.q.to(at::kDouble), x.k.to(at::kDouble), x.v.to(at::kDouble), rows);
}

// Twice the error of plain fp32 ATen against fp64, plus one rounding step of the largest value: the
// kernel may sum in another order, not be less careful.
void ExpectAsExactAsPlain(const Qkv& x, const PackedRows& rows) {
  const AttentionResult wide = Wide(x, rows);
  const AttentionResult plain = reference::Attention(x.q, x.k, x.v, rows);
  const AttentionResult kernel = Attention(x.q, x.k, x.v, rows);
  const auto bound = [](const at::Tensor& plain_part, const at::Tensor& wide_part) {
    return 2 * MaxError(plain_part, wide_part) + wide_part.abs().max().item<double>() * 1.2e-7 * 4;
  };
  EXPECT_LE(MaxError(kernel.out, wide.out), bound(plain.out, wide.out));
  EXPECT_LE(MaxError(kernel.lse, wide.lse), bound(plain.lse, wide.lse));
}

//                            length, {heads, kv_heads}, head_dim
using GridCase = std::tuple<int64_t, std::pair<int64_t, int64_t>, int64_t>;

class AttentionGrid : public ::testing::TestWithParam<GridCase> {};

TEST_P(AttentionGrid, MatchesReferenceAtEveryBlockSizeAndDensity) {
  const auto [length, heads, head_dim] = GetParam();
  at::manual_seed(7);
  const Qkv x = RandomQkv(length, heads.first, heads.second, head_dim);
  for (const int64_t block : {32, 64, 128, 256}) {
    for (const double density : {0.05, 0.3, 1.0}) {
      SCOPED_TRACE(::testing::Message() << "block " << block << " density " << density);
      PackedRows rows = DenseRows({length}, block);
      if (density < 1) SetMask(0, RandomMask(heads.first, length, block, density), block, &rows);
      ExpectAsExactAsPlain(x, rows);
    }
  }
}

std::string GridName(const ::testing::TestParamInfo<GridCase>& test_case) {
  const auto& [length, heads, head_dim] = test_case.param;
  return absl::StrCat("cpu_fp32_L", length, "_h", heads.first, "kv", heads.second, "_d", head_dim);
}

INSTANTIATE_TEST_SUITE_P(Parity, AttentionGrid,
                         ::testing::Combine(::testing::Values(1, 2, 31, 127, 128, 129, 257, 1000),
                                            ::testing::Values(std::pair<int64_t, int64_t>{4, 4},
                                                              std::pair<int64_t, int64_t>{4, 1},
                                                              std::pair<int64_t, int64_t>{7, 7}),
                                            ::testing::Values(32, 64)),
                         GridName);

// Head sizes that are no multiple of a vector take the padded path.
class AttentionHeadDim : public ::testing::TestWithParam<int64_t> {};
TEST_P(AttentionHeadDim, MatchesReference) {
  at::manual_seed(8);
  const Qkv x = RandomQkv(200, 2, 1, GetParam());
  PackedRows rows = DenseRows({200}, 64);
  SetMask(0, RandomMask(2, 200, 64, 0.5), 64, &rows);
  ExpectAsExactAsPlain(x, rows);
}
INSTANTIATE_TEST_SUITE_P(Parity, AttentionHeadDim, ::testing::Values(1, 2, 20, 80, 96, 128, 256));

TEST(AttentionTest, LongRowWithATailMatchesReference) {
  at::manual_seed(19);
  const Qkv x = RandomQkv(4095, 2, 1, 64);
  for (const int64_t block : {32, 256}) {
    SCOPED_TRACE(block);
    PackedRows rows = DenseRows({4095}, block);
    SetMask(0, RandomMask(2, 4095, block, 0.3), block, &rows);
    ExpectAsExactAsPlain(x, rows);
  }
}

class AttentionBfloat16 : public ::testing::TestWithParam<int64_t> {};

// bf16 inputs are widened exactly, sums are fp32: all that differs is the rounding of the output.
TEST_P(AttentionBfloat16, EqualsFloatAttentionRoundedOnce) {
  at::manual_seed(20);
  const Qkv wide = RandomQkv(GetParam(), 4, 2, 96);
  const Qkv narrow{wide.q.to(at::kBFloat16), wide.k.to(at::kBFloat16), wide.v.to(at::kBFloat16)};
  PackedRows rows = DenseRows({GetParam()}, 32);
  SetMask(0, RandomMask(4, GetParam(), 32, 0.5), 32, &rows);
  const AttentionResult got = Attention(narrow.q, narrow.k, narrow.v, rows);
  const AttentionResult want =
      Attention(narrow.q.to(at::kFloat), narrow.k.to(at::kFloat), narrow.v.to(at::kFloat), rows);
  ASSERT_EQ(got.out.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(got.out, want.out.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(got.lse, want.lse));
}

TEST_P(AttentionBfloat16, IsWithinHalfAStepOfReference) {
  at::manual_seed(21);
  const Qkv wide = RandomQkv(GetParam(), 4, 1, 64);
  const Qkv x{wide.q.to(at::kBFloat16), wide.k.to(at::kBFloat16), wide.v.to(at::kBFloat16)};
  const PackedRows rows = DenseRows({GetParam()}, 64);
  const at::Tensor want = Wide(x, rows).out;
  const at::Tensor error = (Attention(x.q, x.k, x.v, rows).out.to(at::kDouble) - want).abs();
  // bf16 has 8 significant bits: half a step is at most 2^-8 of the value.
  EXPECT_TRUE((error <= want.abs() / 256 + 1e-5).all().item<bool>());
}

TEST_P(AttentionBfloat16, MassIsThatOfFloatAttention) {
  at::manual_seed(22);
  const Qkv wide = RandomQkv(GetParam(), 2, 2, 32);
  const at::Tensor q = wide.q.to(at::kBFloat16);
  const at::Tensor k = wide.k.to(at::kBFloat16);
  const at::Tensor mass = PooledMass(q, k, 32, 0.5, 0);
  EXPECT_EQ(mass.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(mass, PooledMass(q.to(at::kFloat), k.to(at::kFloat), 32, 0.5, 0)));
}

INSTANTIATE_TEST_SUITE_P(Tails, AttentionBfloat16, ::testing::Values(1, 2, 127, 128, 129, 500));

TEST(AttentionTest, NanSurvivesRoundingToBfloat16) {
  Qkv x = RandomQkv(40, 1, 1, 32);
  x.v[3][0][5] = NAN;
  const at::Tensor out = Attention(x.q.to(at::kBFloat16), x.k.to(at::kBFloat16),
                                   x.v.to(at::kBFloat16), DenseRows({40}, 32))
                             .out;
  EXPECT_TRUE(out.select(2, 5).isnan().all().item<bool>());
  EXPECT_TRUE(out.select(2, 4).isfinite().all().item<bool>());
}

TEST(AttentionTest, AcceptsStridedQueriesAndKeys) {
  at::manual_seed(9);
  const at::Tensor fused = at::randn({150, 3, 4, 32});  // [tokens, q|k|v, heads, head_dim]
  const Qkv x{fused.select(1, 0), fused.select(1, 1), fused.select(1, 2)};
  ExpectAsExactAsPlain(x, DenseRows({150}, 32));
}

TEST(AttentionTest, RowBitsDoNotDependOnItsBatch) {
  at::manual_seed(10);
  const std::vector<int64_t> lengths = {129, 1, 300, 64, 257};
  const Qkv x = RandomQkv(129 + 1 + 300 + 64 + 257, 4, 2, 32);
  PackedRows rows = DenseRows(lengths, 32);
  const at::Tensor mask_300 = RandomMask(4, 300, 64, 0.3);
  const at::Tensor mask_257 = RandomMask(4, 257, 32, 0.2);
  SetMask(2, mask_300, 64, &rows);
  SetMask(4, mask_257, 32, &rows);
  const AttentionResult packed = Attention(x.q, x.k, x.v, rows);
  int64_t begin = 0;
  for (size_t r = 0; r < lengths.size(); ++r) {
    PackedRows solo = DenseRows({lengths[r]}, 32);
    if (r == 2) SetMask(0, mask_300, 64, &solo);
    if (r == 4) SetMask(0, mask_257, 32, &solo);
    const auto part = [&](const at::Tensor& t) { return t.narrow(0, begin, lengths[r]).clone(); };
    const AttentionResult alone = Attention(part(x.q), part(x.k), part(x.v), solo);
    EXPECT_TRUE(at::equal(alone.out, part(packed.out))) << "row " << r;
    EXPECT_TRUE(at::equal(alone.lse, packed.lse.narrow(1, begin, lengths[r]))) << "row " << r;
    begin += lengths[r];
  }
}

TEST(AttentionTest, BitsDoNotDependOnThreadCount) {
  at::manual_seed(11);
  const Qkv x = RandomQkv(500, 3, 3, 64);
  const PackedRows rows = DenseRows({500}, 128);
  const int threads = at::get_num_threads();
  const AttentionResult many = Attention(x.q, x.k, x.v, rows);
  at::set_num_threads(1);
  const AttentionResult one = Attention(x.q, x.k, x.v, rows);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(many.out, one.out));
}

TEST(AttentionTest, FullMaskEqualsDense) {
  at::manual_seed(12);
  const Qkv x = RandomQkv(333, 2, 2, 64);
  PackedRows rows = DenseRows({333}, 64);
  const AttentionResult dense = Attention(x.q, x.k, x.v, rows);
  SetMask(0, at::ones({2, 6, 6}, at::kBool), 64, &rows);
  const AttentionResult sparse = Attention(x.q, x.k, x.v, rows);
  EXPECT_LE(MaxError(dense.out, sparse.out), 2e-6);  // the summation order differs
}

TEST(AttentionTest, DroppedBlocksAreNotRead) {
  at::manual_seed(13);
  Qkv x = RandomQkv(256, 1, 1, 32);
  at::Tensor mask = at::ones({1, 4, 4}, at::kBool);
  mask.select(2, 2).fill_(false);
  PackedRows rows = DenseRows({256}, 64);
  SetMask(0, mask, 64, &rows);
  const AttentionResult before = Attention(x.q, x.k, x.v, rows);
  x.k.narrow(0, 128, 64).fill_(NAN);
  x.v.narrow(0, 128, 64).fill_(NAN);
  const AttentionResult after = Attention(x.q, x.k, x.v, rows);
  EXPECT_TRUE(at::equal(before.out, after.out));
}

TEST(AttentionTest, NanStaysInsideItsRow) {
  at::manual_seed(14);
  Qkv x = RandomQkv(300, 2, 2, 32);
  x.k[10][0][0] = NAN;
  const AttentionResult result = Attention(x.q, x.k, x.v, DenseRows({100, 200}, 32));
  EXPECT_TRUE(result.out.narrow(0, 0, 100).select(1, 0).isnan().all().item<bool>());
  EXPECT_TRUE(result.out.narrow(0, 0, 100).select(1, 1).isfinite().all().item<bool>());
  EXPECT_TRUE(result.out.narrow(0, 100, 200).isfinite().all().item<bool>());
}

TEST(AttentionTest, HugeLogitsStayFinite) {
  at::manual_seed(15);
  Qkv x = RandomQkv(200, 1, 1, 64);
  x.q *= 100;
  x.k *= 100;
  const AttentionResult result = Attention(x.q, x.k, x.v, DenseRows({200}, 64));
  EXPECT_TRUE(result.out.isfinite().all().item<bool>());
}

TEST(AttentionTest, QueryBlockWithoutKeysGivesZeros) {
  at::manual_seed(16);
  const Qkv x = RandomQkv(128, 1, 1, 32);
  at::Tensor mask = at::ones({1, 2, 2}, at::kBool);
  mask[0][1].fill_(false);
  PackedRows rows = DenseRows({128}, 64);
  SetMask(0, mask, 64, &rows);
  const AttentionResult result = Attention(x.q, x.k, x.v, rows);
  EXPECT_TRUE(result.out.narrow(0, 64, 64).eq(0).all().item<bool>());
  EXPECT_TRUE(result.lse.narrow(1, 64, 64).isneginf().all().item<bool>());
}

class MassGrid : public ::testing::TestWithParam<std::tuple<int64_t, int64_t>> {};

TEST_P(MassGrid, FusedMassMatchesReferenceAndSumsToOne) {
  const auto [length, block] = GetParam();
  at::manual_seed(17);
  const int64_t other = 77;
  const Qkv x = RandomQkv(other + length, 4, 2, 32);
  const PackedRows rows = DenseRows({other, length}, block);
  const int64_t blocks = BlockCount(length, block);
  const AttentionMassResult result =
      AttentionWithMass(x.q, x.k, x.v, rows, testing::Longs({-1, 5}), 5 + 4 * blocks * blocks);
  const at::Tensor mass = result.mass.narrow(0, 5, 4 * blocks * blocks).view({4, blocks, blocks});
  const auto row = [&, length = length](const at::Tensor& t) {
    return t.narrow(0, other, length).to(at::kDouble);
  };
  const double scale = 1 / std::sqrt(32.0);
  EXPECT_LE(MaxError(mass, reference::PooledMass(row(x.q), row(x.k), block, scale, 0)), 1e-6);
  EXPECT_LE(MaxError(mass.sum(2), at::ones({4, blocks})), 1e-5);
  EXPECT_LE(MaxError(result.out, Wide(x, rows).out), 1e-5);
}

TEST_P(MassGrid, PooledMassMatchesReferenceAtAnyScaleAndStart) {
  const auto [length, block] = GetParam();
  at::manual_seed(18);
  const Qkv x = RandomQkv(length, 4, 2, 32);
  const int64_t last = BlockCount(length, block) - 1;
  for (const int64_t first : {int64_t{0}, last / 2, last}) {
    const at::Tensor mass = PooledMass(x.q, x.k, block, 0.5, first);
    EXPECT_LE(MaxError(mass, reference::PooledMass(x.q.to(at::kDouble), x.k.to(at::kDouble), block,
                                                   0.5, first)),
              1e-6)
        << "first key block " << first;
  }
}

INSTANTIATE_TEST_SUITE_P(Parity, MassGrid,
                         ::testing::Combine(::testing::Values(1, 33, 128, 129, 500, 1025),
                                            ::testing::Values(32, 64, 128, 256)));

TEST(AttentionChecksTest, ErrorsNameTheArgument) {
  const Qkv x = RandomQkv(64, 4, 2, 32);
  const auto message = [&](const Qkv& qkv, const PackedRows& rows) -> std::string {
    try {
      Attention(qkv.q, qkv.k, qkv.v, rows);
    } catch (const c10::ValueError& error) {
      return error.what_without_backtrace();
    }
    return "accepted";
  };
  using ::testing::HasSubstr;
  const PackedRows good = DenseRows({64}, 32);
  EXPECT_EQ(message(x, good), "accepted");
  EXPECT_THAT(message({x.q.to(at::kDouble), x.k, x.v}, good), HasSubstr("q is Double"));
  EXPECT_THAT(message({x.q, at::randn({64, 3, 32}), x.v}, good), HasSubstr("k must have a number"));
  EXPECT_THAT(message({x.q, x.k.to(at::kBFloat16), x.v}, good), HasSubstr("k must have q's dtype"));
  EXPECT_THAT(message({x.q, x.k, x.v.to(at::kBFloat16)}, good), HasSubstr("v must have q's dtype"));
  EXPECT_THAT(message(RandomQkv(64, 1, 1, 257), good),
              HasSubstr("head_dim is 257, must be in [1, 256]"));
  EXPECT_THAT(message({x.q, x.k, at::randn({63, 2, 32})}, good),
              HasSubstr("v must have k's shape"));
  EXPECT_THAT(message(x, DenseRows({63}, 32)), HasSubstr("row_offsets"));
  EXPECT_THAT(message(x, DenseRows({64}, 48)), HasSubstr("block_tokens is 48"));
  PackedRows rows = good;
  rows.row_offsets = testing::Longs({});
  EXPECT_THAT(message(x, rows), HasSubstr("row_offsets must have one element more than"));
  rows.row_offsets = testing::Longs({0, -1, 64});
  EXPECT_THAT(message(x, rows), HasSubstr("row_offsets must start at 0, increase strictly"));
  rows.row_offsets = at::tensor({0.0, 64.0});
  EXPECT_THAT(message(x, rows),
              HasSubstr("row_offsets must be a contiguous one-dimensional int64"));
  rows = good;
  rows.mask_offsets = testing::Longs({-1, -1});
  EXPECT_THAT(message(x, rows), HasSubstr("mask_offsets has 2 elements, must have 1"));
  rows = good;
  rows.block_tokens = testing::Longs({});
  EXPECT_THAT(message(x, rows), HasSubstr("block_tokens has 0 elements, must have 1"));
  PackedRows beyond = good;
  beyond.mask_offsets = testing::Longs({0});
  EXPECT_THAT(message(x, beyond), HasSubstr("ends beyond the arena"));
}

TEST(AttentionChecksTest, MassOffsetsFitTheRowsAndTheMass) {
  const Qkv x = RandomQkv(64, 4, 2, 32);
  const auto message = [&](const PackedRows& rows, const at::Tensor& offsets,
                           int64_t size) -> std::string {
    try {
      AttentionWithMass(x.q, x.k, x.v, rows, offsets, size);
    } catch (const c10::ValueError& error) {
      return error.what_without_backtrace();
    }
    return "accepted";
  };
  using ::testing::HasSubstr;
  const PackedRows dense = DenseRows({64}, 32);
  EXPECT_EQ(message(dense, testing::Longs({0}), 16), "accepted");
  EXPECT_THAT(message(dense, testing::Longs({}), 16),
              HasSubstr("mass_offsets has 0 elements, must have 1"));
  EXPECT_THAT(message(dense, testing::Longs({1}), 16), HasSubstr("mass_offsets must leave room"));
  PackedRows sparse = dense;
  SetMask(0, at::ones({4, 2, 2}, at::kBool), 32, &sparse);
  EXPECT_THAT(message(sparse, testing::Longs({0}), 16),
              HasSubstr("mass_offsets may only name dense rows"));
}

}  // namespace
}  // namespace sparsed::kernels
