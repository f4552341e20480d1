// SPDX-License-Identifier: Apache-2.0
// Whole attention plans against the papers' masks and outputs: what StepAttention builds from
// given queries and keys, in one rebuilding step, and what it then computes.
#include <algorithm>
#include <string>
#include <vector>

#include <absl/strings/str_split.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "engine/attention/step_attention.h"
#include "kernels/reference/reference.h"
#include "tests/support/golden.h"
#include "tests/support/tensors.h"

namespace sparsed {
namespace {

using testing::GoldenTensors;
using testing::MaxError;

constexpr double kOutTolerance = 2e-5;  // of the golden README for fp32

struct Built {
  at::Tensor mask;  // [heads, blocks, blocks] bool
  at::Tensor out;   // [tokens, heads, head_dim]
  MaskBuild build;
};

// One layer of one step that builds the plan's mask and uses it.
Built Rebuild(const GoldenTensors& golden, const AttentionPlan& plan) {
  const at::Tensor q = golden.Packed("q");
  const at::Tensor k = golden.Packed("k");
  ModelInfo model;
  model.layers = 1;
  model.heads = static_cast<int32_t>(q.size(1));
  model.kv_heads = static_cast<int32_t>(k.size(1));
  const auto length = static_cast<int32_t>(q.size(0));
  EXPECT_TRUE(ValidateAttentionPlan(plan, length).ok()) << ValidateAttentionPlan(plan, length);
  const AttentionSchedule schedule =
      ResolveSchedule(plan, Canvas::FromPrompt({}, length, 0), /*steps=*/4, model);
  EXPECT_EQ(schedule.PhaseOf(0), StepPhase::kRebuild);
  const AttentionPattern pattern = MakeAttentionPattern(schedule, at::kCPU);
  const at::Tensor arena = at::full({schedule.mask_bytes / 4}, -1, at::kInt);
  StepAttention attention({{.length = length,
                            .phase = StepPhase::kRebuild,
                            .schedule = &schedule,
                            .pattern = &pattern}},
                          arena, 1);
  Built built;
  built.out = attention.Run(0, q, k, golden.Packed("v"));
  built.mask = kernels::reference::UnpackMask(arena.narrow(0, 0, schedule.mask_words), model.heads,
                                              schedule.blocks, schedule.blocks);
  built.build = attention.build(0);
  return built;
}

void ExpectMatches(const GoldenTensors& golden, const std::string& name, const Built& built) {
  at::Tensor mask = golden.Get(name + "/mask");
  if (mask.dim() == 2) mask = mask.unsqueeze(0).expand(built.mask.sizes());
  EXPECT_TRUE(at::equal(built.mask, mask));
  EXPECT_NEAR(built.build.density(), mask.to(at::kDouble).mean().item<double>(), 1e-12);
  EXPECT_GT(built.build.retained_mass(), 0);
  const at::Tensor rows = built.out.index_select(0, golden.Get("rows").to(at::kLong));
  EXPECT_LE(MaxError(rows.transpose(0, 1), golden.Get(name + "/out_rows")), kOutTolerance);
}

// Names of everything that has a mask in the file.
std::vector<std::string> MaskNames(const GoldenTensors& golden) {
  constexpr std::string_view kSuffix = "/mask";
  std::vector<std::string> names;
  for (const TensorView& view : golden.file().tensors()) {
    const std::string name(view.name);
    if (name.size() > kSuffix.size() && name.ends_with(kSuffix)) {
      names.push_back(name.substr(0, name.size() - kSuffix.size()));
    }
  }
  return names;
}

class NablaPlan : public ::testing::TestWithParam<std::pair<const char*, Extent3>> {};

// Names are thrT, sta-T-H-W or both, joined by "_".
AttentionPlan NablaPlanOf(const std::string& name, const Extent3& grid) {
  AttentionPlan plan = *FindAttentionPreset("nabla_sta");
  plan.grid = grid;
  plan.score = ScoreRule::kNone;
  plan.select = SelectRule::kNone;
  plan.prior = PriorRule::kNone;
  const std::vector<std::string> parts = absl::StrSplit(name, '_');
  for (const std::string& part : parts) {
    if (part.starts_with("thr")) {
      plan.score = ScoreRule::kMean;
      plan.select = SelectRule::kMass;
      plan.mass = std::stod(part.substr(3));
      continue;
    }
    const std::vector<std::string> window = absl::StrSplit(part, '-');
    plan.prior = PriorRule::kSta;
    plan.sta_window = {std::stoi(window.at(1)), std::stoi(window.at(2)), std::stoi(window.at(3))};
  }
  return plan;
}

TEST_P(NablaPlan, BuildsTheReferencesMasksAndOutputs) {
  const auto& [file, grid] = GetParam();
  GOLDEN_OR_SKIP(path, std::string("nabla/") + file + ".safetensors");
  const GoldenTensors golden(path);
  const std::vector<std::string> names = MaskNames(golden);
  EXPECT_GE(names.size(), 4u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    ExpectMatches(golden, name, Rebuild(golden, NablaPlanOf(name, grid)));
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, NablaPlan,
                         ::testing::Values(std::pair("t3_h16_w24", Extent3{3, 16, 24}),
                                           std::pair("t2_h24_w40", Extent3{2, 24, 40}),
                                           std::pair("t1_h32_w32", Extent3{1, 32, 32}),
                                           std::pair("t7_h16_w8", Extent3{7, 16, 8})),
                         [](const auto& test) { return std::string(test.param.first); });

class BaAttPlan : public ::testing::TestWithParam<const char*> {};

// Names are bB/SORT/sparsityS/SCORE.
AttentionPlan BaAttPlanOf(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '/');
  AttentionPlan plan = *FindAttentionPreset("ba_att");
  plan.block_tokens = std::stoi(parts.at(0).substr(1));
  const std::string& sort = parts.at(1);
  plan.reorder = sort == "sort_none"            ? ReorderRule::kNone
                 : sort.starts_with("sort_qk_") ? ReorderRule::kNormQK
                                                : ReorderRule::kNormK;
  plan.sort_blocks = sort.ends_with("_global") ? 0 : 4;
  plan.ratio = 1 - std::stod(parts.at(2).substr(std::string("sparsity").size()));
  plan.score = parts.at(3) == "mean" ? ScoreRule::kMean : ScoreRule::kMeanCov;
  return plan;
}

TEST_P(BaAttPlan, BuildsTheGoldenMasksAndOutputs) {
  GOLDEN_OR_SKIP(path, std::string("baatt/") + GetParam() + ".safetensors");
  const GoldenTensors golden(path);
  const std::vector<std::string> names = MaskNames(golden);
  EXPECT_GE(names.size(), 4u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    ExpectMatches(golden, name, Rebuild(golden, BaAttPlanOf(name)));
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, BaAttPlan,
                         ::testing::Values("heavy_keys_L1024", "rope_topics_L1000",
                                           "norm_driven_L777"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace sparsed
