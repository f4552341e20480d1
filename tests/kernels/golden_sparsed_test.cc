// SPDX-License-Identifier: Apache-2.0
// SparseD's masses, masks and outputs (tests/golden, README of the golden set).
#include <cmath>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ATen/ATen.h>

#include "kernels/attention.h"
#include "kernels/block_mask.h"
#include "kernels/reference/reference.h"
#include "kernels/select.h"
#include "tests/support/golden.h"
#include "tests/support/golden_attention.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tensors.h"

namespace sparsed::kernels {
namespace {

using testing::GoldenTensors;
using testing::kMassTolerance;
using testing::kOutTolerance;
using testing::Longs;
using testing::MaskedRow;
using testing::MaxError;
using testing::ReadJson;
using testing::Rows;

class SparsedGolden : public testing::GoldenOnDevice {};

TEST_P(SparsedGolden, MassesMasksAndOutputsMatch) {
  GOLDEN_OR_SKIP(path, std::string("sparsed/") + name() + ".safetensors");
  GOLDEN_OR_SKIP(json_path, "sparsed/sparsed.json");
  const GoldenTensors golden(path, device());
  const nlohmann::json facts = ReadJson(json_path)[name()];
  const at::Tensor q = golden.Packed("q");
  const at::Tensor k = golden.Packed("k");
  const at::Tensor v = golden.Packed("v");
  const int64_t tokens = q.size(0);
  const int64_t heads = q.size(1);
  const double head_scale = 1 / std::sqrt(double(q.size(2)));
  const double quirk_scale = 1 / std::sqrt(double(heads));
  const at::Tensor rows = golden.Get("rows");
  EXPECT_LE(MaxError(Rows(Attention(q, k, v, DenseRow(tokens, 64)).out, rows),
                     golden.Get("dense/out_rows")),
            kOutTolerance);

  int compared = 0;
  for (const nlohmann::json& cell : facts["grid"]) {
    const int64_t block = cell["block_size"];
    const double ratio = cell["ratio"];
    const int64_t blocks = BlockCount(tokens, block);
    const std::string prefix = "bs" + std::to_string(block);
    if (!golden.Has(prefix + "/mass_all/inv_sqrt_head_dim")) continue;  // cut from the subset
    const int64_t first = cell["paper"]["first_generation_block"];
    EXPECT_EQ(first, std::min(BlockCount(int64_t{facts["prompt"]}, block), blocks - 1));
    // The fused pass yields the mass at the right scale, the stand-alone operator at any.
    const AttentionMassResult fused =
        AttentionWithMass(q, k, v, DenseRow(tokens, block), Longs({0}), heads * blocks * blocks);
    const at::Tensor mass = fused.mass.view({heads, blocks, blocks});
    EXPECT_LE(MaxError(mass, golden.Get(prefix + "/mass_all/inv_sqrt_head_dim")), kMassTolerance);
    for (const bool quirk : {false, true}) {
      const double scale = quirk ? quirk_scale : head_scale;
      const std::string name = quirk ? "inv_sqrt_heads" : "inv_sqrt_head_dim";
      EXPECT_LE(
          MaxError(PooledMass(q, k, block, scale, 0), golden.Get(prefix + "/mass_all/" + name)),
          kMassTolerance);
      EXPECT_LE(MaxError(PooledMass(q, k, block, scale, first),
                         golden.Get(prefix + "/mass_generation/" + name)),
                kMassTolerance);
    }
    for (const std::string variant : {"paper", "compat_llada", "compat_dream"}) {
      const std::string key = prefix + "/rho" + nlohmann::json(ratio).dump() + "/" + variant;
      SCOPED_TRACE(key);
      ASSERT_TRUE(golden.Has(key + "/mask"));
      const double scale = variant == "compat_llada" ? quirk_scale : head_scale;
      const bool paper = variant == "paper";
      const at::Tensor words =
          at::zeros({MaskWords(heads, tokens, block)}, q.options().dtype(at::kInt));
      SelectBlocks(words, paper ? mass : PooledMass(q, k, block, scale, 0),
                   paper ? at::Tensor() : PooledMass(q, k, block, scale, first),
                   {paper ? kTopRatio : kTopRatioCompat, ratio, first});
      const at::Tensor mask = reference::UnpackMask(words, heads, blocks, blocks);
      EXPECT_TRUE(at::equal(mask, golden.Get(key + "/mask")));

      const MaskStatistics statistics = ComputeMaskStatistics(words, mass, tokens, block);
      EXPECT_NEAR(statistics.kept.sum().item<double>() / double(heads * blocks * blocks),
                  cell[variant]["density"].get<double>(), 1e-12);
      // The files average over query blocks, the operator over queries: the same but for a short
      // last block.
      EXPECT_NEAR((mass * mask).sum(2).mean().item<double>(),
                  cell[variant]["retained_mass"].get<double>(), 1e-5);
      EXPECT_TRUE(
          at::allclose(statistics.retained,
                       reference::ComputeMaskStatistics(mask, mass, tokens, block).retained));

      const at::Tensor out = Attention(q, k, v, MaskedRow(tokens, block, words)).out;
      EXPECT_LE(MaxError(Rows(out, rows), golden.Get(key + "/out_rows")), kOutTolerance);
      if (golden.Has(key + "/out")) {
        EXPECT_LE(MaxError(out.transpose(0, 1), golden.Get(key + "/out")), kOutTolerance);
      }
      ++compared;
    }
  }
  EXPECT_GE(compared, 3);
}

constexpr const char* kFiles[] = {"L512", "L777", "L1024", "short_prompt", "gen_in_last_tail"};
INSTANTIATE_TEST_SUITE_P(Golden, SparsedGolden,
                         ::testing::Combine(::testing::Values(at::kCPU),
                                            ::testing::ValuesIn(kFiles)),
                         testing::GoldenName);
INSTANTIATE_TEST_SUITE_P(CudaGolden, SparsedGolden,
                         ::testing::Combine(::testing::Values(at::kCUDA),
                                            ::testing::ValuesIn(kFiles)),
                         testing::GoldenName);

}  // namespace
}  // namespace sparsed::kernels
