// SPDX-License-Identifier: Apache-2.0
// BA-Att's orders, block statistics, scores, masks and outputs (tests/golden, README of the golden
// set): GQA, head_dim 64 and 128, a partial last block.
#include <algorithm>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ATen/ATen.h>

#include "kernels/attention.h"
#include "kernels/block_mask.h"
#include "kernels/reference/reference.h"
#include "kernels/reorder.h"
#include "kernels/score.h"
#include "kernels/select.h"
#include "tests/support/golden.h"
#include "tests/support/golden_attention.h"
#include "tests/support/tensors.h"

namespace sparsed::kernels {
namespace {

using testing::Gathered;
using testing::GoldenTensors;
using testing::kOutTolerance;
using testing::MaskedRow;
using testing::MaxError;
using testing::ReadJson;
using testing::Rows;
using testing::Scattered;

constexpr double kStatisticsTolerance = 1e-5;  // relative to the row's largest value

// Largest error of any row of the last dimension, relative to the row's largest value.
double RowError(const at::Tensor& x, const at::Tensor& golden) {
  EXPECT_EQ(x.sizes(), golden.sizes());
  const at::Tensor error = (x.to(at::kDouble) - golden.to(at::kDouble)).abs().amax(-1);
  return (error / golden.abs().amax(-1).to(at::kDouble).clamp_min(1e-30)).max().item<double>();
}

// What "sort_qk_w256" says: which tensors are sorted, and the window (0 = one window).
struct SortName {
  bool keys = false;
  bool queries = false;
  int64_t window = 0;

  explicit SortName(const std::string& name)
      : keys(name.find("_k_") != std::string::npos || name.find("_qk_") != std::string::npos),
        queries(name.find("_qk_") != std::string::npos) {
    const size_t window_at = name.rfind("_w");
    if (window_at != std::string::npos) window = std::stoll(name.substr(window_at + 2));
  }
};

// Tokens in a sorted order.
struct Sorted {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
  at::Tensor order_q;
};

// The golden retained mass: every query block counts alike, a short last one too.
double MeanBlockMass(const Sorted& sorted, const at::Tensor& words, int64_t block) {
  const int64_t tokens = sorted.q.size(0);
  double sum = 0;
  for (int64_t begin = 0; begin < tokens; begin += block) {
    const at::Tensor queries =
        at::arange(begin, std::min(begin + block, tokens), words.options().dtype(at::kLong));
    sum += SampleRetainedMass(sorted.q, sorted.k, words, queries, block).mean().item<double>();
  }
  return sum / static_cast<double>(BlockCount(tokens, block));
}

class BaAttGolden : public testing::GoldenOnDevice {
 protected:
  static Sorted Sort(const GoldenTensors& golden, const std::string& tag) {
    const SortName sort(tag);
    const at::Tensor q = golden.Packed("q");
    const at::Tensor k = golden.Packed("k");
    const at::Tensor identity = at::arange(q.size(0), q.options().dtype(at::kInt)).unsqueeze(0);
    const at::Tensor order_k = sort.keys ? NormOrder(k, sort.window) : identity;
    const at::Tensor order_q = sort.queries ? NormOrder(q, sort.window) : identity;
    const at::Tensor golden_k = golden.Get(tag + "/perm_k");
    const at::Tensor golden_q = golden.Get(tag + "/perm_q");
    EXPECT_TRUE(at::equal(order_k.expand(golden_k.sizes()), golden_k));
    EXPECT_TRUE(at::equal(order_q.expand(golden_q.sizes()), golden_q));
    return {Gathered(q, order_q), Gathered(k, order_k), Gathered(golden.Packed("v"), order_k),
            order_q};
  }

  static void ExpectStatistics(const BlockStatistics& statistics, const GoldenTensors& golden,
                               const std::string& prefix) {
    EXPECT_LE(RowError(statistics.mean, golden.Get(prefix + "_mean")), kStatisticsTolerance);
    EXPECT_LE(RowError(statistics.variance, golden.Get(prefix + "_var")), kStatisticsTolerance);
  }
};

TEST_P(BaAttGolden, OrdersStatisticsMasksAndOutputsMatch) {
  GOLDEN_OR_SKIP(path, std::string("baatt/") + name() + ".safetensors");
  const GoldenTensors golden(path, device());
  const nlohmann::json facts = ReadJson(path.parent_path() / "baatt.json")[name()];
  const int64_t tokens = facts["length"];
  const int64_t heads = facts["heads"];
  int compared = 0;
  for (const nlohmann::json& cell : facts["grid"]) {
    const std::string tag = cell["tag"];  // bB/SORT
    SCOPED_TRACE(tag);
    if (!golden.Has(tag + "/q_mean")) continue;  // cut from the subset
    const int64_t block = std::stoll(tag.substr(1));
    const int64_t blocks = BlockCount(tokens, block);
    const Sorted sorted = Sort(golden, tag);
    const BlockStatistics q = ComputeBlockStatistics(sorted.q, block);
    const BlockStatistics k = ComputeBlockStatistics(sorted.k, block);
    ExpectStatistics(q, golden, tag + "/q");
    ExpectStatistics(k, golden, tag + "/k");

    const at::Tensor mean = BlockLogits(q, k, tokens, block, /*covariance=*/false);
    const at::Tensor mean_cov = BlockLogits(q, k, tokens, block, /*covariance=*/true);
    const at::Tensor golden_mean =
        golden.Get(tag + "/logit_mean") + golden.Get(tag + "/logit_count");
    EXPECT_LE(RowError(mean, golden_mean), kStatisticsTolerance);
    EXPECT_LE(RowError(mean_cov, golden_mean + golden.Get(tag + "/logit_cov")),
              kStatisticsTolerance);

    for (const nlohmann::json& selection : cell["selections"]) {
      const double sparsity = selection["sparsity"];
      const std::string score = selection["score"];
      const std::string key = tag + "/sparsity" + nlohmann::json(sparsity).dump() + "/" + score;
      SCOPED_TRACE(key);
      if (!golden.Has(key + "/mask")) continue;
      const at::Tensor words =
          at::zeros({MaskWords(heads, tokens, block)}, mean.options().dtype(at::kInt));
      SelectBlocks(words, score == "mean" ? mean : mean_cov, {}, {kTopK, 1 - sparsity});
      const at::Tensor mask = reference::UnpackMask(words, heads, blocks, blocks);
      EXPECT_TRUE(at::equal(mask, golden.Get(key + "/mask")));
      EXPECT_TRUE(mask.sum(2).eq(selection["kappa"].get<int64_t>()).all().item<bool>());
      EXPECT_NEAR(MeanBlockMass(sorted, words, block), selection["retained_mass"].get<double>(),
                  1e-6);
      const at::Tensor out =
          Attention(sorted.q, sorted.k, sorted.v, MaskedRow(tokens, block, words)).out;
      EXPECT_LE(MaxError(Rows(Scattered(out, sorted.order_q), golden.Get("rows")),
                         golden.Get(key + "/out_rows")),
                kOutTolerance);
      ++compared;
    }
  }
  EXPECT_GE(compared, 4);
}

constexpr const char* kFiles[] = {"heavy_keys_L1024", "rope_topics_L1000", "norm_driven_L777"};
INSTANTIATE_TEST_SUITE_P(Golden, BaAttGolden,
                         ::testing::Combine(::testing::Values(at::kCPU),
                                            ::testing::ValuesIn(kFiles)),
                         testing::GoldenName);
INSTANTIATE_TEST_SUITE_P(CudaGolden, BaAttGolden,
                         ::testing::Combine(::testing::Values(at::kCUDA),
                                            ::testing::ValuesIn(kFiles)),
                         testing::GoldenName);

}  // namespace
}  // namespace sparsed::kernels
