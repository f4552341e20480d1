// SPDX-License-Identifier: Apache-2.0
// attention on CUDA against reference/ in fp64: every shape, type and mask.
#include "kernels/attention.h"

#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "kernels/block_mask.h"
#include "tests/kernels/cuda/attention_cases.h"
#include "tests/support/gpu.h"
#include "tests/support/packed_rows.h"

namespace sparsed::kernels {
namespace {

using testing::CheckAttention;
using testing::DenseRows;
using testing::Heads;
using testing::OneRow;
using testing::Part;
using testing::Qkv;
using testing::RandomMask;
using testing::RandomQkv;
using testing::SetMask;
using testing::ToGpu;

class CudaAttention : public testing::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    at::manual_seed(7);
  }
};

// As one test per length and heads: a test pays seconds for the first use of CUDA if it runs alone.
class CudaAttentionGrid : public CudaAttention,
                          public ::testing::WithParamInterface<std::tuple<int64_t, Heads>> {};

TEST_P(CudaAttentionGrid, MatchesReferenceAtEveryTypeHeadSizeBlockAndDensity) {
  const auto [length, heads] = GetParam();
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const int64_t head_dim : {64, 128}) {
      const Qkv x = RandomQkv(length, heads, head_dim, type);
      SCOPED_TRACE(::testing::Message() << type << " head_dim " << head_dim);
      {
        SCOPED_TRACE("dense");
        CheckAttention(x, OneRow(length, 64));
      }
      for (const int64_t block : {64, 128}) {
        for (const double density : {0.02, 0.1, 0.3, 1.0}) {
          SCOPED_TRACE(::testing::Message() << "block " << block << " density " << density);
          CheckAttention(x, OneRow(length, block, RandomMask(heads.first, length, block, density)));
        }
      }
    }
  }
}

std::string GridName(const ::testing::TestParamInfo<std::tuple<int64_t, Heads>>& test_case) {
  const auto& [length, heads] = test_case.param;
  return (::testing::Message() << "L" << length << "_h" << heads.first << "kv" << heads.second)
      .GetString();
}

INSTANTIATE_TEST_SUITE_P(CudaParity, CudaAttentionGrid,
                         ::testing::Combine(::testing::Values(1, 2, 63, 64, 65, 127, 128, 129, 257,
                                                              1000),
                                            ::testing::Values(Heads{4, 4}, Heads{4, 1}, Heads{7, 7},
                                                              Heads{7, 1}, Heads{28, 4})),
                         GridName);

INSTANTIATE_TEST_SUITE_P(CudaLong, CudaAttentionGrid,
                         ::testing::Combine(::testing::Values(4096, 16389),
                                            ::testing::Values(Heads{2, 1})),
                         GridName);

class CudaAttentionHeadDim : public CudaAttention, public ::testing::WithParamInterface<int64_t> {};

TEST_P(CudaAttentionHeadDim, MatchesReferenceAtEveryTypeAndBlock) {
  const int64_t head_dim = GetParam();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t length : {1, 33, 200, 515}) {
      const Qkv x = RandomQkv(length, {4, 2}, head_dim, type);
      SCOPED_TRACE(::testing::Message() << type << " length " << length);
      CheckAttention(x, OneRow(length, 128));
      for (const int64_t block : {32, 64, 128, 256}) {
        for (const double density : {0.1, 0.5}) {
          SCOPED_TRACE(::testing::Message() << "block " << block << " density " << density);
          CheckAttention(x, OneRow(length, block, RandomMask(4, length, block, density)));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(CudaParity, CudaAttentionHeadDim,
                         ::testing::Values(1, 2, 20, 32, 64, 80, 96, 127, 128, 129, 192, 256));

class CudaAttentionType : public CudaAttention,
                          public ::testing::WithParamInterface<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(CudaTypes, CudaAttentionType,
                         ::testing::Values(at::kBFloat16, at::kHalf, at::kFloat),
                         [](const auto& test) { return std::string(c10::toString(test.param)); });

// Eight rows: dense and sparse, every block size, ragged lengths.
PackedRows MixedRows(int64_t heads) {
  const std::vector<int64_t> lengths = {129, 1, 300, 64, 257, 1000, 31, 512};
  PackedRows rows = DenseRows(lengths, 128);
  SetMask(2, RandomMask(heads, 300, 64, 0.3), 64, &rows);
  SetMask(3, RandomMask(heads, 64, 32, 0.5), 32, &rows);
  SetMask(4, RandomMask(heads, 257, 32, 0.2), 32, &rows);
  SetMask(5, RandomMask(heads, 1000, 128, 0.2), 128, &rows);
  SetMask(7, RandomMask(heads, 512, 256, 0.5), 256, &rows);
  return ToGpu(rows);
}

// Row `row` of the batch as a batch of its own.
PackedRows Solo(const PackedRows& rows, int64_t row) {
  const int64_t length = (rows.row_offsets[row + 1] - rows.row_offsets[row]).item<int64_t>();
  return {testing::Longs({0, length}), rows.mask_arena, rows.mask_offsets.narrow(0, row, 1).clone(),
          rows.block_tokens.narrow(0, row, 1).clone()};
}

TEST_P(CudaAttentionType, MixedRowsMatchReference) {
  const PackedRows rows = MixedRows(6);
  const int64_t tokens = rows.row_offsets[-1].item<int64_t>();
  for (const int64_t head_dim : {64, 128}) {
    SCOPED_TRACE(head_dim);
    CheckAttention(RandomQkv(tokens, {6, 2}, head_dim, GetParam()), rows);
  }
}

TEST_P(CudaAttentionType, RowBitsDoNotDependOnItsBatch) {
  const PackedRows rows = MixedRows(6);
  const int64_t tokens = rows.row_offsets[-1].item<int64_t>();
  for (const int64_t head_dim : {64, 80, 128}) {
    const Qkv x = RandomQkv(tokens, {6, 2}, head_dim, GetParam());
    const AttentionResult packed = Attention(x.q, x.k, x.v, rows);
    for (int64_t row = 0; row < 8; ++row) {
      const int64_t begin = rows.row_offsets[row].item<int64_t>();
      const PackedRows solo = Solo(rows, row);
      const int64_t length = solo.row_offsets[1].item<int64_t>();
      const Qkv part = Part(x, begin, length);
      const AttentionResult alone = Attention(part.q, part.k, part.v, solo);
      EXPECT_TRUE(at::equal(alone.out, packed.out.narrow(0, begin, length))) << "row " << row;
      EXPECT_TRUE(at::equal(alone.lse, packed.lse.narrow(1, begin, length))) << "row " << row;
    }
  }
}

TEST_P(CudaAttentionType, RunsGiveEqualBits) {
  const PackedRows rows = MixedRows(8);
  const Qkv x = RandomQkv(rows.row_offsets[-1].item<int64_t>(), {8, 2}, 128, GetParam());
  const AttentionResult first = Attention(x.q, x.k, x.v, rows);
  for (int run = 0; run < 3; ++run) {
    const AttentionResult again = Attention(x.q, x.k, x.v, rows);
    EXPECT_TRUE(at::equal(first.out, again.out));
    EXPECT_TRUE(at::equal(first.lse, again.lse));
  }
}

TEST_P(CudaAttentionType, ShapesOfMasksMatchReference) {
  const int64_t length = 1000;
  for (const int64_t block : {32, 64, 128}) {
    const int64_t blocks = BlockCount(length, block);
    const Qkv x = RandomQkv(length, {4, 2}, 128, GetParam());
    const at::Tensor none = at::zeros({4, blocks, blocks}, at::kBool);
    const auto check = [&](const char* name, const at::Tensor& mask) {
      SCOPED_TRACE(::testing::Message() << name << " block " << block);
      CheckAttention(x, OneRow(length, block, mask));
    };
    at::Tensor first = none.clone();
    first.select(2, 0).fill_(true);
    check("first key block only", first);
    at::Tensor last = none.clone();
    last.select(2, blocks - 1).fill_(true);
    check("last key block only, which is short", last);
    check("diagonal", at::eye(blocks).to(at::kBool).expand({4, blocks, blocks}));
    check("nothing kept", none);
  }
}

TEST_P(CudaAttentionType, QueryBlockWithoutKeysGivesZeros) {
  const Qkv x = RandomQkv(200, {2, 2}, 64, GetParam());
  at::Tensor mask = at::ones({2, 4, 4}, at::kBool);
  mask[0][1].fill_(false);
  mask[1][3].fill_(false);  // the short one
  const AttentionResult result = CheckAttention(x, OneRow(200, 64, mask));
  EXPECT_TRUE(result.out.narrow(0, 64, 64).select(1, 0).eq(0).all().item<bool>());
  EXPECT_TRUE(result.lse[0].narrow(0, 64, 64).isneginf().all().item<bool>());
  EXPECT_TRUE(result.out.narrow(0, 192, 8).select(1, 1).eq(0).all().item<bool>());
  EXPECT_TRUE(result.lse[1].narrow(0, 192, 8).isneginf().all().item<bool>());
}

TEST_P(CudaAttentionType, AcceptsStridedQueriesAndKeys) {
  for (const int64_t head_dim : {20, 64, 128}) {
    SCOPED_TRACE(head_dim);
    // [tokens, q heads | k heads | v heads, head_dim], as one linear layer makes them
    const at::Tensor fused =
        at::randn({300, 4 + 2 + 2, head_dim}, testing::OnGpu(at::kFloat)).to(GetParam());
    const Qkv x{fused.narrow(1, 0, 4), fused.narrow(1, 4, 2), fused.narrow(1, 6, 2)};
    CheckAttention(x, OneRow(300, 64, RandomMask(4, 300, 64, 0.4)));
    CheckAttention(x, OneRow(300, 64));
    // Heads outermost: a token's heads are far apart.
    const Qkv y{x.q.transpose(0, 1).contiguous().transpose(0, 1),
                x.k.transpose(0, 1).contiguous().transpose(0, 1),
                x.v.transpose(0, 1).contiguous().transpose(0, 1)};
    CheckAttention(y, OneRow(300, 128, RandomMask(4, 300, 128, 0.5)));
    CheckAttention(y, OneRow(300, 128));
  }
}

// Memory that begins anywhere: no 16-byte loads there.
TEST_P(CudaAttentionType, AcceptsUnalignedTensors) {
  const auto shifted = [&](int64_t heads) {
    return at::randn({1 + 150 * heads * 64}, testing::OnGpu(at::kFloat))
        .to(GetParam())
        .narrow(0, 1, 150 * heads * 64)
        .view({150, heads, 64});
  };
  const Qkv x{shifted(4), shifted(2), shifted(2)};
  CheckAttention(x, OneRow(150, 64, RandomMask(4, 150, 64, 0.5)));
  CheckAttention(x, OneRow(150, 64));
}

TEST_P(CudaAttentionType, DroppedBlocksAreNotRead) {
  const Qkv x = RandomQkv(512, {2, 1}, 128, GetParam());
  at::Tensor mask = at::ones({2, 4, 4}, at::kBool);
  mask.select(2, 2).fill_(false);
  const PackedRows rows = OneRow(512, 128, mask);
  const AttentionResult before = Attention(x.q, x.k, x.v, rows);
  x.k.narrow(0, 256, 128).fill_(NAN);
  x.v.narrow(0, 256, 128).fill_(INFINITY);
  const AttentionResult after = Attention(x.q, x.k, x.v, rows);
  EXPECT_TRUE(at::equal(before.out, after.out));
  EXPECT_TRUE(at::equal(before.lse, after.lse));
}

TEST_P(CudaAttentionType, NanInAKeyReachesItsHeadsQueriesAndNoOthers) {
  for (const int64_t head_dim : {64, 80, 128}) {
    Qkv x = RandomQkv(700, {4, 2}, head_dim, GetParam());
    x.k[10][0][0] = NAN;
    const AttentionResult result = Attention(x.q, x.k, x.v, ToGpu(DenseRows({300, 400}, 64)));
    EXPECT_TRUE(result.out.narrow(0, 0, 300).narrow(1, 0, 2).isnan().all().item<bool>());
    EXPECT_TRUE(result.out.narrow(0, 0, 300).narrow(1, 2, 2).isfinite().all().item<bool>());
    EXPECT_TRUE(result.out.narrow(0, 300, 400).isfinite().all().item<bool>());
    EXPECT_TRUE(result.lse.narrow(0, 0, 2).narrow(1, 0, 300).isnan().all().item<bool>());
    EXPECT_TRUE(result.lse.narrow(1, 300, 400).isfinite().all().item<bool>());
  }
}

TEST_P(CudaAttentionType, NanInAQueryReachesThatQueryOnly) {
  for (const int64_t head_dim : {64, 80, 128}) {
    Qkv x = RandomQkv(300, {2, 1}, head_dim, GetParam());
    x.q[77][1][3] = NAN;
    const at::Tensor bad = Attention(x.q, x.k, x.v, OneRow(300, 64)).out.isnan();
    EXPECT_TRUE(bad[77][1].all().item<bool>());
    EXPECT_EQ(bad.sum().item<int64_t>(), head_dim);
  }
}

TEST_P(CudaAttentionType, NanAndInfinityInAValueReachTheirColumnOnly) {
  for (const int64_t head_dim : {64, 80, 128}) {
    Qkv x = RandomQkv(300, {2, 1}, head_dim, GetParam());
    x.v[150][0][5] = NAN;
    x.v[151][0][6] = INFINITY;
    // A query's weight of token 151 may round to 0 in fp16, and 0 * inf is NaN: make it large.
    x.k[151].zero_();
    x.q *= 0.1;
    const at::Tensor out = Attention(x.q, x.k, x.v, OneRow(300, 64)).out;
    EXPECT_TRUE(out.select(2, 5).isnan().all().item<bool>());
    EXPECT_TRUE(out.select(2, 6).isposinf().all().item<bool>());
    EXPECT_EQ(out.isfinite().logical_not().sum().item<int64_t>(), 2 * 300 * 2);
  }
}

TEST_P(CudaAttentionType, LargeLogitsStayFiniteAndExact) {
  for (const int64_t head_dim : {64, 128}) {
    Qkv x = RandomQkv(500, {2, 1}, head_dim, GetParam());
    x.q *= 16;  // logits up to +-1e3: one weight is nearly all of a query
    x.k *= 16;
    const AttentionResult result = CheckAttention(x, OneRow(500, 64));
    EXPECT_GT(result.lse.max().item<double>(), 1000);
    CheckAttention(x, OneRow(500, 64, RandomMask(2, 500, 64, 0.3)));
  }
}

TEST_P(CudaAttentionType, EqualKeysGiveTheMeanOfValues) {
  Qkv x = RandomQkv(1000, {2, 2}, 128, GetParam());
  x.k.copy_(x.k.narrow(0, 0, 1).expand_as(x.k).clone());
  CheckAttention(x, OneRow(1000, 128));
}

TEST_P(CudaAttentionType, FullMaskIsDense) {
  const Qkv x = RandomQkv(333, {4, 2}, 128, GetParam());
  const testing::Expected dense = testing::Expect(x, OneRow(333, 128));
  for (const int64_t block : {32, 64, 128, 256}) {
    const int64_t blocks = BlockCount(333, block);
    const PackedRows rows = OneRow(333, block, at::ones({4, blocks, blocks}, at::kBool));
    testing::ExpectAttention(Attention(x.q, x.k, x.v, rows), dense);
  }
}

TEST_F(CudaAttention, HasKernelsOfItsOwn) {
  for (const char* name : {"sparsed::attention", "sparsed::attention_with_mass",
                           "sparsed::pooled_mass", "sparsed::sample_retained_mass"}) {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
    EXPECT_TRUE(op.hasKernelForDispatchKey(c10::DispatchKey::CUDA)) << name;
  }
}

TEST_F(CudaAttention, WrongArgumentsNameTheArgument) {
  const Qkv x = RandomQkv(64, {4, 2}, 32, at::kBFloat16);
  const auto message = [&](const Qkv& qkv, const PackedRows& rows) -> std::string {
    try {
      Attention(qkv.q, qkv.k, qkv.v, rows);
    } catch (const c10::ValueError& error) {
      return error.what_without_backtrace();
    }
    return "accepted";
  };
  using ::testing::HasSubstr;
  const PackedRows good = OneRow(64, 32);
  EXPECT_EQ(message(x, good), "accepted");
  EXPECT_THAT(message({x.q.to(at::kDouble), x.k, x.v}, good), HasSubstr("q is Double"));
  EXPECT_THAT(message({x.q, x.k.to(at::kHalf), x.v}, good), HasSubstr("k must have q's dtype"));
  EXPECT_THAT(message({x.q, x.k.cpu(), x.v}, good), HasSubstr("k is on cpu, must be on cuda"));
  EXPECT_THAT(message({x.q, x.k, x.v.narrow(0, 0, 63)}, good), HasSubstr("v must have k's shape"));
  EXPECT_THAT(message(x, DenseRows({64}, 32)), HasSubstr("mask_arena is on cpu"));
  EXPECT_THAT(message(x, OneRow(63, 32)), HasSubstr("row_offsets"));
  EXPECT_THAT(message(x, OneRow(64, 48)), HasSubstr("block_tokens is 48"));
  PackedRows beyond = good;
  beyond.mask_offsets = testing::Longs({0});
  EXPECT_THAT(message(x, beyond), HasSubstr("ends beyond the arena"));
}

}  // namespace
}  // namespace sparsed::kernels
