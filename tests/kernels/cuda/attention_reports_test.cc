// SPDX-License-Identifier: Apache-2.0
// What went wrong in other block-sparse attention kernels, by their public reports, asked of ours.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "kernels/attention.h"
#include "kernels/block_mask.h"
#include "kernels/select.h"
#include "tests/kernels/cuda/attention_cases.h"
#include "tests/kernels/cuda/graph.h"
#include "tests/support/gpu.h"
#include "tests/support/packed_rows.h"

namespace sparsed::kernels {
namespace {

using testing::CapturedGraph;
using testing::CheckAttention;
using testing::DenseRows;
using testing::Longs;
using testing::OneRow;
using testing::OnGpu;
using testing::Part;
using testing::Qkv;
using testing::RandomMask;
using testing::RandomQkv;
using testing::SetMask;
using testing::ToGpu;

class CudaAttentionLimits : public testing::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    at::manual_seed(23);
  }
  // What the test needs and some GPUs do not have.
  static bool HasFreeMemory(size_t gib) {
    size_t free = 0;
    size_t total = 0;
    return cudaMemGetInfo(&free, &total) == cudaSuccess && free >= gib << 30;
  }
};

class CudaAttentionReports : public CudaAttentionLimits,
                             public ::testing::WithParamInterface<at::ScalarType> {};

std::string TypeName(const ::testing::TestParamInfo<at::ScalarType>& test) {
  return c10::toString(test.param);
}

INSTANTIATE_TEST_SUITE_P(CudaTypes, CudaAttentionReports,
                         ::testing::Values(at::kBFloat16, at::kHalf, at::kFloat), TypeName);

// flashinfer #5090, flash-attention #1395, vllm #936, tilelang #2461: lengths that are no multiple
// of a tile read keys that are not theirs, or give zero-filled keys the weight exp(0).
TEST_P(CudaAttentionReports, TailsTakeNothingFromBeyondTheRow) {
  for (const int64_t head_dim : {64, 80, 128}) {
    for (const int64_t block : {64, 128}) {
      for (const int64_t tail : {1, 63, 64, 65, 127}) {
        for (const bool masked : {false, true}) {
          const int64_t length = 2 * block + tail;
          SCOPED_TRACE(::testing::Message() << "head_dim " << head_dim << " block " << block
                                            << " length " << length << " masked " << masked);
          PackedRows rows = DenseRows({130, length, 130}, block);
          const at::Tensor mask = RandomMask(4, length, block, 0.5);
          if (masked) SetMask(1, mask, block, &rows);
          rows = ToGpu(rows);
          const Qkv x = RandomQkv(130 + length + 130, {4, 2}, head_dim, GetParam());
          for (const at::Tensor& t : {x.q, x.k, x.v}) {
            t.narrow(0, 0, 130).fill_(NAN);
            t.narrow(0, 130 + length, 130).fill_(INFINITY);
          }
          const AttentionResult packed = Attention(x.q, x.k, x.v, rows);
          const AttentionResult alone = CheckAttention(
              Part(x, 130, length), OneRow(length, block, masked ? mask : at::Tensor()));
          EXPECT_TRUE(at::equal(packed.out.narrow(0, 130, length), alone.out));
          EXPECT_TRUE(at::equal(packed.lse.narrow(1, 130, length), alone.lse));
        }
      }
    }
  }
}

// flash-attention #2897: the block mask ignored, the dense result returned.
TEST_P(CudaAttentionReports, MaskIsNotIgnored) {
  for (const int64_t head_dim : {64, 80, 128}) {
    for (const int64_t block : {32, 64, 128, 256}) {
      const Qkv x = RandomQkv(1024, {2, 1}, head_dim, GetParam());
      at::Tensor mask = at::zeros({2, 1024 / block, 1024 / block}, at::kBool);
      mask.select(2, 0).fill_(true);
      const AttentionResult sparse = CheckAttention(x, OneRow(1024, block, mask));
      const AttentionResult dense = Attention(x.q, x.k, x.v, OneRow(1024, block));
      // A quarter of the keys or fewer have far less than all of the weight.
      EXPECT_GT((dense.lse - sparse.lse).mean().item<double>(), 0.5);
    }
  }
}

// flash-attention #2760: some tiles of a launch empty, others not, until warps wait for each other
// for ever.
TEST_P(CudaAttentionReports, EmptyAndFullTilesMixInOneLaunch) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 24; ++i) lengths.push_back(1 + i * 37);
  for (const int64_t block : {64, 128}) {
    PackedRows rows = DenseRows(lengths, block);
    for (int64_t row = 0; row < 24; ++row) {
      const int64_t blocks = BlockCount(lengths[static_cast<size_t>(row)], block);
      at::Tensor mask = at::rand({4, blocks, blocks}).lt(0.3);
      mask.logical_and_(at::rand({4, blocks, 1}).lt(0.5));  // half the query blocks keep nothing
      if (row % 3 != 2) SetMask(row, mask, block, &rows);
    }
    rows = ToGpu(rows);
    CheckAttention(RandomQkv(rows.row_offsets[-1].item<int64_t>(), {4, 2}, 128, GetParam()), rows);
  }
}

// LMCache #3092, vllm #48364: no kept block, or a first one that adds nothing, gives 0/0 or
// -inf - -inf.
TEST_P(CudaAttentionReports, FirstKeptBlockMayBeTheOneTokenTail) {
  for (const int64_t head_dim : {64, 128}) {
    const Qkv x = RandomQkv(129, {2, 1}, head_dim, GetParam());
    at::Tensor mask = at::zeros({2, 3, 3}, at::kBool);
    mask.select(2, 2).fill_(true);
    mask[1][0].fill_(false);  // nothing at all
    const AttentionResult result = CheckAttention(x, OneRow(129, 64, mask));
    EXPECT_TRUE(at::equal(result.out[70][0], x.v[128][0]));  // one key: its value, exactly
    EXPECT_TRUE(result.out[0][1].eq(0).all().item<bool>());
    EXPECT_TRUE(result.lse[1][0].isneginf().item<bool>());
  }
}

// FastVideo #1719: the count of one query tile used for its neighbour.
TEST_P(CudaAttentionReports, CountsMayDifferFromTileToTile) {
  for (const int64_t block : {64, 128}) {
    const int64_t blocks = 12;
    at::Tensor mask = at::zeros({4, blocks, blocks}, at::kBool);
    for (int64_t head = 0; head < 4; ++head) {
      for (int64_t query = 0; query < blocks; ++query) {
        const int64_t count = std::vector<int64_t>{0, 1, 2, blocks}[(query + head) % 4];
        mask[head][query].index_fill_(0, at::randperm(blocks).narrow(0, 0, count), true);
      }
    }
    const int64_t length = blocks * block - 5;
    for (const int64_t head_dim : {64, 128}) {
      CheckAttention(RandomQkv(length, {4, 1}, head_dim, GetParam()), OneRow(length, block, mask));
    }
  }
}

// flashinfer needs equal masks within a group of query heads; ours differ.
TEST_P(CudaAttentionReports, HeadsOfAGroupHaveMasksOfTheirOwn) {
  for (const testing::Heads& heads : {testing::Heads{4, 1}, {7, 1}, {8, 1}, {8, 2}}) {
    const int64_t blocks = 10;
    at::Tensor mask = at::zeros({heads.first, blocks, blocks}, at::kBool);
    for (int64_t head = 0; head < heads.first; ++head) mask[head].select(1, head).fill_(true);
    CheckAttention(RandomQkv(640, heads, 128, GetParam()), OneRow(640, 64, mask));
  }
}

// flashinfer #1367, #1647: buffers for 32768 tiles.
TEST_P(CudaAttentionReports, MoreTilesThanAnyFixedBuffer) {
  const int64_t rows = 300;
  const int64_t length = 129;
  const int64_t heads = 64;  // 300 * 64 heads * 3 query tiles of 64 = 57600
  const Qkv x = RandomQkv(rows * length, {heads, heads}, 64, GetParam());
  const std::vector<int64_t> lengths(rows, length);
  const AttentionResult got = Attention(x.q, x.k, x.v, ToGpu(DenseRows(lengths, 64)));
  for (const int64_t row : {int64_t{0}, int64_t{63}, int64_t{64}, int64_t{170}, rows - 1}) {
    const AttentionResult part = {got.out.narrow(0, row * length, length),
                                  got.lse.narrow(1, row * length, length)};
    testing::ExpectAttention(part,
                             testing::Expect(Part(x, row * length, length), OneRow(length, 64)));
  }
  EXPECT_TRUE(got.lse.isfinite().all().item<bool>());
}

// The same, and vllm's many requests of one token: a softmax over one key gives its value, exactly.
TEST_P(CudaAttentionReports, ManyRowsOfOneToken) {
  for (const int64_t rows : {300, 3200}) {  // * 64 heads = 204800 tiles
    for (const int64_t head_dim : {64, 128}) {
      const Qkv x = RandomQkv(rows, {64, 64}, head_dim, GetParam());
      const AttentionResult got = Attention(
          x.q, x.k, x.v, ToGpu(DenseRows(std::vector<int64_t>(static_cast<size_t>(rows), 1), 64)));
      EXPECT_TRUE(at::equal(got.out, x.v));
    }
  }
}

// flashinfer #1271: a row shorter than a block.
TEST_P(CudaAttentionReports, RowMayBeShorterThanABlock) {
  for (const int64_t block : {32, 64, 128, 256}) {
    for (const int64_t head_dim : {64, 128}) {
      const Qkv x = RandomQkv(6, {4, 2}, head_dim, GetParam());
      CheckAttention(x, OneRow(6, block, at::ones({4, 1, 1}, at::kBool)));
      CheckAttention(x, OneRow(6, block));
    }
  }
}

// pytorch #141126, #133717: lengths that are no multiple of 128, and masks longer than the input.
TEST_P(CudaAttentionReports, LengthOf1025WithEveryMask) {
  for (const int64_t block : {32, 64, 128, 256}) {
    for (const int64_t head_dim : {64, 128}) {
      const Qkv x = RandomQkv(1025, {2, 2}, head_dim, GetParam());
      CheckAttention(x, OneRow(1025, block, RandomMask(2, 1025, block, 0.4)));
    }
  }
}

TEST_F(CudaAttentionLimits, MaskThatDoesNotFitIsRejected) {
  const Qkv x = RandomQkv(512, {4, 2}, 64, at::kBFloat16);
  const PackedRows good = OneRow(512, 64, RandomMask(4, 512, 64, 0.5));
  const auto rejects = [&](const at::Tensor& arena, const char* text) {
    PackedRows rows = good;
    rows.mask_arena = arena;
    try {
      Attention(x.q, x.k, x.v, rows);
    } catch (const c10::ValueError& error) {
      EXPECT_THAT(error.what_without_backtrace(), ::testing::HasSubstr(text));
      return;
    }
    ADD_FAILURE() << "accepted; expected " << text;
  };
  const at::Tensor& arena = good.mask_arena;
  rejects(arena.narrow(0, 0, arena.size(0) - 1), "ends beyond the arena");
  rejects(at::stack({arena, arena}, 1).select(1, 0), "mask_arena must be a contiguous");
  rejects(arena.to(at::kLong), "mask_arena must be a contiguous one-dimensional int32");
  // A mask for a shorter row is too small, whatever it would mean.
  rejects(OneRow(256, 64, RandomMask(4, 256, 64, 0.5)).mask_arena, "ends beyond the arena");
}

// NeMo Automodel #3802, vllm #50427, flash-attention #1500: 32-bit offsets. Only the diagonal is
// kept, so each block is an attention of its own and a few suffice. 2^31 + 2^17 elements in q.
TEST_F(CudaAttentionLimits, OffsetsBeyond32BitsReachTheLastBlock) {
  if (!HasFreeMemory(40)) GTEST_SKIP() << "needs 40 GiB of GPU memory";
  const int64_t block = 64;
  const int64_t heads = 32;
  const int64_t length = (1 << 20) + block;
  const int64_t blocks = BlockCount(length, block);
  const auto random = [&](int64_t count) {
    return at::randn({length, count, 64}, OnGpu(at::kBFloat16));
  };
  const Qkv x{random(heads), random(heads), random(heads)};
  ASSERT_GT(x.q.numel(), int64_t{1} << 31);
  const at::Tensor i = at::arange(blocks, OnGpu(at::kLong));
  at::Tensor words = at::zeros({heads, blocks, MaskRowWords(blocks)}, OnGpu(at::kInt));
  const at::Tensor bits = at::ones({blocks}, OnGpu(at::kInt)).bitwise_left_shift(i.remainder(32));
  words.scatter_(2, i.div(32, "floor").view({1, blocks, 1}).expand({heads, blocks, 1}),
                 bits.to(at::kInt).view({1, blocks, 1}).expand({heads, blocks, 1}));
  PackedRows rows = DenseRows({length}, block);
  rows.mask_arena = words.flatten();
  rows.mask_offsets[0] = 0;
  const AttentionResult got = Attention(x.q, x.k, x.v, rows);
  for (const int64_t which : {int64_t{0}, blocks / 2, blocks - 2, blocks - 1}) {
    testing::ExpectAttention(
        {got.out.narrow(0, which * block, block), got.lse.narrow(1, which * block, block)},
        testing::Expect(Part(x, which * block, block), OneRow(block, block)));
  }
}

// The same of the arena: a mask that starts beyond 2^31 words.
TEST_F(CudaAttentionLimits, MaskMayStartBeyond32BitsOfWords) {
  if (!HasFreeMemory(16)) GTEST_SKIP() << "needs 16 GiB of GPU memory";
  const int64_t start = (int64_t{1} << 31) + 7;
  const at::Tensor mask = RandomMask(4, 500, 64, 0.3);
  PackedRows rows = OneRow(500, 64, mask);
  const at::Tensor small = rows.mask_arena;
  at::Tensor arena = at::zeros({start + small.size(0)}, OnGpu(at::kInt));
  arena.narrow(0, start, small.size(0)).copy_(small);
  const Qkv x = RandomQkv(500, {4, 2}, 128, at::kBFloat16);
  const AttentionResult want = CheckAttention(x, rows);
  rows.mask_arena = arena;
  rows.mask_offsets[0] = start;
  EXPECT_TRUE(at::equal(Attention(x.q, x.k, x.v, rows).out, want.out));
}

// flashinfer #2938, #4554, #5176: host synchronisation, or stale plans under CUDA graphs.
TEST_P(CudaAttentionReports, CapturedAttentionTakesNewInputs) {
  for (const int64_t head_dim : {64, 128}) {
    const Qkv x = RandomQkv(100 + 1000, {4, 2}, head_dim, GetParam());
    PackedRows rows = DenseRows({100, 1000}, 128);
    SetMask(1, RandomMask(4, 1000, 128, 0.3), 128, &rows);
    rows = ToGpu(rows);
    AttentionResult result;
    CapturedGraph graph([&] { result = Attention(x.q, x.k, x.v, rows); });
    for (int replay = 0; replay < 2; ++replay) {
      const Qkv y = RandomQkv(100 + 1000, {4, 2}, head_dim, GetParam());
      x.q.copy_(y.q);
      x.k.copy_(y.k);
      x.v.copy_(y.v);
      rows.mask_arena.copy_(reference::PackMask(RandomMask(4, 1000, 128, 0.5)));
      graph.Replay();
      testing::ExpectAttention(result, testing::Expect(x, rows));
    }
  }
}

TEST_P(CudaAttentionReports, CapturedMassesTakeNewInputs) {
  const Qkv x = RandomQkv(777, {4, 2}, 128, GetParam());
  const PackedRows rows = ToGpu(DenseRows({777}, 128));
  const at::Tensor words = reference::PackMask(RandomMask(4, 777, 128, 0.5)).to(at::kCUDA);
  const at::Tensor queries = at::arange(0, 777, 5, OnGpu(at::kLong));
  at::Tensor fused;
  at::Tensor pooled;
  at::Tensor retained;
  CapturedGraph graph([&] {
    fused = AttentionWithMass(x.q, x.k, x.v, rows, Longs({0}), 4 * 7 * 7).mass;
    pooled = PooledMass(x.q, x.k, 128, 0.1, 2);
    retained = SampleRetainedMass(x.q, x.k, words, queries, 128);
  });
  const Qkv y = RandomQkv(777, {4, 2}, 128, GetParam());
  x.q.copy_(y.q);
  x.k.copy_(y.k);
  graph.Replay();
  testing::CheckMass(fused.view({4, 7, 7}), y.q, y.k, 128, 1 / std::sqrt(128.0), 0);
  testing::CheckMass(pooled, y.q, y.k, 128, 0.1, 2);
  EXPECT_TRUE(at::equal(retained, SampleRetainedMass(y.q, y.k, words, queries, 128)));
}

// A step that builds its mask and the next one that uses it, as one graph.
TEST_P(CudaAttentionReports, CapturedMassSelectionAndAttentionTakeNewInputs) {
  const auto select = c10::Dispatcher::singleton().findSchemaOrThrow("sparsed::select_blocks", "");
  if (!select.hasKernelForDispatchKey(c10::DispatchKey::CUDA)) {
    GTEST_SKIP() << "select_blocks has no CUDA kernel in this build";
  }
  const int64_t length = 1000;
  const int64_t blocks = BlockCount(length, 128);
  const Qkv x = RandomQkv(length, {4, 2}, 128, GetParam());
  const PackedRows dense = OneRow(length, 128);
  PackedRows sparse = OneRow(length, 128, at::ones({4, blocks, blocks}, at::kBool));
  AttentionMassResult built;
  AttentionResult used;
  CapturedGraph graph([&] {
    built = AttentionWithMass(x.q, x.k, x.v, dense, Longs({0}), 4 * blocks * blocks);
    SelectBlocks(sparse.mask_arena, built.mass.view({4, blocks, blocks}), {}, {kTopRatio, 0.3, 2});
    used = Attention(x.q, x.k, x.v, sparse);
  });
  for (int replay = 0; replay < 2; ++replay) {
    const Qkv y = RandomQkv(length, {4, 2}, 128, GetParam());
    x.q.copy_(y.q);
    x.k.copy_(y.k);
    x.v.copy_(y.v);
    sparse.mask_arena.zero_();
    graph.Replay();
    const at::Tensor want =
        reference::SelectBlocks(built.mass.view({4, blocks, blocks}), {}, {kTopRatio, 0.3, 2});
    EXPECT_TRUE(at::equal(reference::PackMask(want), sparse.mask_arena));
    testing::ExpectAttention(used, testing::Expect(x, sparse));
  }
}

}  // namespace
}  // namespace sparsed::kernels
