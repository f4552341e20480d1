// SPDX-License-Identifier: Apache-2.0
// NABLA's and STA's orders, block scores, masks and outputs (tests/golden, README of the golden
// set).
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ATen/ATen.h>

#include "kernels/attention.h"
#include "kernels/block_mask.h"
#include "kernels/prior.h"
#include "kernels/reference/reference.h"
#include "kernels/reorder.h"
#include "kernels/score.h"
#include "kernels/select.h"
#include "tests/support/golden.h"
#include "tests/support/golden_attention.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tensors.h"

namespace sparsed::kernels {
namespace {

using testing::Gathered;
using testing::GoldenTensors;
using testing::kMassTolerance;
using testing::kOutTolerance;
using testing::MaskedRow;
using testing::MaxError;
using testing::ReadJson;
using testing::Rows;
using testing::Scattered;

constexpr int64_t kBlock = 64;  // an 8x8 tile

// "thr0.7", "sta-3-1-3" or both joined by "_".
struct MaskName {
  double kept_mass = 0;               // 0 = no selection
  std::vector<int64_t> sta_window{};  // empty = no prior

  explicit MaskName(const std::string& name) {
    if (name.rfind("thr", 0) == 0) kept_mass = std::stod(name.substr(3));
    const size_t sta = name.find("sta-");
    if (sta == std::string::npos) return;
    std::istringstream sizes(name.substr(sta + 3));
    for (char dash = 0; sizes >> dash;) sizes >> sta_window.emplace_back();
  }
};

class NablaGolden : public testing::GoldenOnDevice {
 protected:
  // The mask of a name, made by the operators from block scores [heads, blocks, blocks].
  static at::Tensor MakeMask(const MaskName& name, const at::Tensor& scores,
                             const std::vector<int64_t>& tiles) {
    const int64_t heads = scores.size(0);
    const int64_t words = scores.size(1) * MaskRowWords(scores.size(2));
    const at::Tensor mask = at::zeros({heads * words}, scores.options().dtype(at::kInt));
    if (name.kept_mass > 0) SelectBlocks(mask, scores, {}, {kMass, name.kept_mass});
    if (!name.sta_window.empty()) {
      const at::Tensor window = StaMask(tiles, name.sta_window).to(mask.device());
      mask.view({heads, words}).bitwise_or_(window.unsqueeze(0));
    }
    return mask;
  }
};

TEST_P(NablaGolden, OrderScoresMasksAndOutputsMatch) {
  GOLDEN_OR_SKIP(path, std::string("nabla/") + name() + ".safetensors");
  const GoldenTensors golden(path, device());
  const nlohmann::json facts = ReadJson(path.parent_path() / "nabla.json")[name()];
  const auto grid = facts["grid"].get<std::vector<int64_t>>();
  const auto tiles = facts["tiles"].get<std::vector<int64_t>>();

  const at::Tensor order = FractalOrder(grid[0], grid[1], grid[2]).to(device());
  EXPECT_TRUE(at::equal(order[0], golden.Get("fractal_permutation")));
  const at::Tensor q = Gathered(golden.Packed("q"), order);
  const at::Tensor k = Gathered(golden.Packed("k"), order);
  const at::Tensor v = Gathered(golden.Packed("v"), order);
  const int64_t tokens = q.size(0);
  const int64_t heads = q.size(1);
  const int64_t blocks = BlockCount(tokens, kBlock);

  const at::Tensor scores =
      at::softmax(BlockLogits(ComputeBlockStatistics(q, kBlock), ComputeBlockStatistics(k, kBlock),
                              tokens, kBlock, /*covariance=*/false),
                  -1);
  EXPECT_LE(MaxError(scores, golden.Get("pooled_map")), kMassTolerance);
  const auto expect_output = [&](const PackedRows& rows, const std::string& name) {
    const at::Tensor out = Scattered(Attention(q, k, v, rows).out, order);
    EXPECT_LE(MaxError(Rows(out, golden.Get("rows")), golden.Get(name + "/out_rows")),
              kOutTolerance);
    if (golden.Has(name + "/out")) {
      EXPECT_LE(MaxError(out.transpose(0, 1), golden.Get(name + "/out")), kOutTolerance);
    }
  };
  expect_output(DenseRow(tokens, kBlock), "dense");

  int compared = 0;
  for (const auto& [name, mask_facts] : facts["masks"].items()) {
    SCOPED_TRACE(name);
    if (!golden.Has(name + "/mask")) continue;  // cut from the subset
    const at::Tensor words = MakeMask(MaskName(name), scores, tiles);
    const at::Tensor mask = reference::UnpackMask(words, heads, blocks, blocks);
    EXPECT_TRUE(at::equal(mask, golden.Get(name + "/mask").expand(mask.sizes())));
    EXPECT_NEAR(CountKeptBlocks(words, heads).sum().item<double>() / double(mask.numel()),
                mask_facts["density"].get<double>(), 1e-12);
    const at::Tensor kept = scores.masked_fill(mask.logical_not(), 0.0).sum(2).min();
    EXPECT_NEAR(kept.item<double>(), mask_facts["kept_mass_min"].get<double>(), 1e-5);
    expect_output(MaskedRow(tokens, kBlock, words), name);
    ++compared;
  }
  EXPECT_GE(compared, 3);
}

constexpr const char* kFiles[] = {"t3_h16_w24", "t2_h24_w40", "t1_h32_w32", "t7_h16_w8"};
INSTANTIATE_TEST_SUITE_P(Golden, NablaGolden,
                         ::testing::Combine(::testing::Values(at::kCPU),
                                            ::testing::ValuesIn(kFiles)),
                         testing::GoldenName);
INSTANTIATE_TEST_SUITE_P(CudaGolden, NablaGolden,
                         ::testing::Combine(::testing::Values(at::kCUDA),
                                            ::testing::ValuesIn(kFiles)),
                         testing::GoldenName);

}  // namespace
}  // namespace sparsed::kernels
