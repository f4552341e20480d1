// SPDX-License-Identifier: Apache-2.0
// The operators against the papers' masks, masses and outputs (tests/golden, README of the golden
// set).
#include "tests/support/golden.h"

#include <cmath>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ATen/ATen.h>

#include "kernels/attention.h"
#include "kernels/block_mask.h"
#include "kernels/reference/reference.h"
#include "kernels/select.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tensors.h"

namespace sparsed::kernels {
namespace {

using testing::DenseRows;
using testing::GoldenTensors;
using testing::Longs;
using testing::MaxError;
using testing::SetMask;

// Tolerances of the golden README for fp32.
constexpr double kOutTolerance = 2e-5;
constexpr double kMassTolerance = 1e-5;

nlohmann::json ReadJson(const std::filesystem::path& path) {
  std::ifstream stream(path);
  return nlohmann::json::parse(stream);
}

at::Tensor Rows(const at::Tensor& out, const at::Tensor& rows) {  // -> [heads, rows, head_dim]
  return out.index_select(0, rows.to(at::kLong)).transpose(0, 1);
}

// Share of set bits of a packed mask, by the operator's own counting.
double Density(const at::Tensor& words, const at::Tensor& mask) {
  const MaskStatistics statistics = ComputeMaskStatistics(
      words, at::zeros(mask.sizes(), at::kFloat), mask.size(1) * 64, /*block_tokens=*/64);
  return static_cast<double>(statistics.kept.sum().item<int64_t>()) /
         static_cast<double>(mask.numel());
}

class SparsedGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(SparsedGolden, MassesMasksAndOutputsMatch) {
  GOLDEN_OR_SKIP(path, std::string("sparsed/") + GetParam() + ".safetensors");
  GOLDEN_OR_SKIP(json_path, "sparsed/sparsed.json");
  const GoldenTensors golden(path);
  const nlohmann::json facts = ReadJson(json_path)[GetParam()];
  const at::Tensor q = golden.Packed("q");
  const at::Tensor k = golden.Packed("k");
  const at::Tensor v = golden.Packed("v");
  const int64_t tokens = q.size(0);
  const int64_t heads = q.size(1);
  const double head_scale = 1 / std::sqrt(double(q.size(2)));
  const double quirk_scale = 1 / std::sqrt(double(heads));
  const at::Tensor rows = golden.Get("rows");
  EXPECT_LE(MaxError(Rows(Attention(q, k, v, DenseRows({tokens}, 64)).out, rows),
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
        AttentionWithMass(q, k, v, DenseRows({tokens}, block), Longs({0}), heads * blocks * blocks);
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
      const at::Tensor words = at::zeros({MaskWords(heads, tokens, block)}, at::kInt);
      SelectBlocks(words, paper ? mass : PooledMass(q, k, block, scale, 0),
                   paper ? at::Tensor() : PooledMass(q, k, block, scale, first),
                   paper ? kTopRatio : kTopRatioCompat, ratio, first);
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

      PackedRows packed = DenseRows({tokens}, block);
      SetMask(0, mask, block, &packed);
      const at::Tensor out = Attention(q, k, v, packed).out;
      EXPECT_LE(MaxError(Rows(out, rows), golden.Get(key + "/out_rows")), kOutTolerance);
      if (golden.Has(key + "/out")) {
        EXPECT_LE(MaxError(out.transpose(0, 1), golden.Get(key + "/out")), kOutTolerance);
      }
      ++compared;
    }
  }
  EXPECT_GE(compared, 3);
}

INSTANTIATE_TEST_SUITE_P(Golden, SparsedGolden,
                         ::testing::Values("L512", "L777", "L1024", "short_prompt",
                                           "gen_in_last_tail"),
                         [](const auto& test) { return std::string(test.param); });

// NABLA and STA masks (64-token tiles in fractal order) through the attention operator.
class NablaGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(NablaGolden, OutputsUnderTheirMasksMatch) {
  GOLDEN_OR_SKIP(path, std::string("nabla/") + GetParam() + ".safetensors");
  const GoldenTensors golden(path);
  const nlohmann::json facts = ReadJson(path.parent_path() / "nabla.json")[GetParam()]["masks"];
  const at::Tensor permutation = golden.Get("fractal_permutation").to(at::kLong);
  const at::Tensor inverse = permutation.argsort();
  const auto fractal = [&](const char* name) {
    return golden.Packed(name).index_select(0, permutation);
  };
  const at::Tensor q = fractal("q");
  const at::Tensor k = fractal("k");
  const at::Tensor v = fractal("v");
  int compared = 0;
  for (const TensorView& view : golden.file().tensors()) {
    if (view.name.size() < 5 || view.name.substr(view.name.size() - 5) != "/mask") continue;
    const std::string name = view.name.substr(0, view.name.size() - 5);
    at::Tensor mask = golden.Get(view.name);
    if (mask.dim() == 2) mask = mask.unsqueeze(0).repeat({q.size(1), 1, 1});
    PackedRows packed = DenseRows({q.size(0)}, 64);
    SetMask(0, mask, 64, &packed);
    EXPECT_NEAR(Density(packed.mask_arena, mask), facts[name]["density"].get<double>(), 1e-6);
    const at::Tensor out = Attention(q, k, v, packed).out.index_select(0, inverse);
    EXPECT_LE(MaxError(Rows(out, golden.Get("rows")), golden.Get(name + "/out_rows")),
              kOutTolerance)
        << name;
    ++compared;
  }
  EXPECT_GE(compared, 3);
}

INSTANTIATE_TEST_SUITE_P(Golden, NablaGolden,
                         ::testing::Values("t3_h16_w24", "t2_h24_w40", "t1_h32_w32", "t7_h16_w8"),
                         [](const auto& test) { return std::string(test.param); });

// BA-Att masks over sorted tokens (GQA, head_dim 64 and 128, partial last block).
class BaAttGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(BaAttGolden, OutputsUnderTheirMasksMatch) {
  GOLDEN_OR_SKIP(path, std::string("baatt/") + GetParam() + ".safetensors");
  const GoldenTensors golden(path);
  const nlohmann::json facts = ReadJson(path.parent_path() / "baatt.json")[GetParam()];
  EXPECT_EQ(golden.Packed("q").size(0), facts["length"].get<int64_t>());
  // Gathers each head's tokens: x [tokens, heads, d], order [heads, tokens].
  const auto gather = [](const at::Tensor& x, const at::Tensor& order) {
    const at::Tensor index = order.to(at::kLong).transpose(0, 1).unsqueeze(2).expand(x.sizes());
    return x.gather(0, index);
  };
  int compared = 0;
  for (const TensorView& view : golden.file().tensors()) {
    if (view.name.size() < 5 || view.name.substr(view.name.size() - 5) != "/mask") continue;
    // bB/SORT/sparsityS/SCORE/mask
    const std::string name = view.name.substr(0, view.name.size() - 5);
    const size_t first_slash = name.find('/');
    const int64_t block = std::stoll(name.substr(1, first_slash - 1));
    const std::string sort = name.substr(0, name.find('/', first_slash + 1));
    at::Tensor q = golden.Packed("q");
    at::Tensor k = golden.Packed("k");
    at::Tensor v = golden.Packed("v");
    at::Tensor inverse_q;
    if (golden.Has(sort + "/perm_k")) {
      k = gather(k, golden.Get(sort + "/perm_k"));
      v = gather(v, golden.Get(sort + "/perm_k"));
    }
    if (golden.Has(sort + "/perm_q")) {
      inverse_q = golden.Get(sort + "/perm_q").to(at::kLong).argsort(/*dim=*/int64_t{1});
      q = gather(q, golden.Get(sort + "/perm_q"));
    }
    PackedRows packed = DenseRows({q.size(0)}, block);
    SetMask(0, golden.Get(view.name), block, &packed);
    at::Tensor out = Attention(q, k, v, packed).out;
    if (inverse_q.defined()) out = gather(out, inverse_q);
    EXPECT_LE(MaxError(Rows(out, golden.Get("rows")), golden.Get(name + "/out_rows")),
              kOutTolerance)
        << name;
    ++compared;
  }
  EXPECT_GE(compared, 4);
}

INSTANTIATE_TEST_SUITE_P(Golden, BaAttGolden,
                         ::testing::Values("heavy_keys_L1024", "rope_topics_L1000",
                                           "norm_driven_L777"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace sparsed::kernels
