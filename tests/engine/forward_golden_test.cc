// SPDX-License-Identifier: Apache-2.0
// Logits, block masks and sparse logits of the network against the references' numbers.
#include <algorithm>
#include <fstream>
#include <string>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ATen/ATen.h>

#include "engine/base/status_macros.h"
#include "engine/forward.h"
#include "engine/model/family.h"
#include "kernels/block_mask.h"
#include "kernels/reference/reference.h"
#include "tests/support/golden.h"
#include "tests/support/matchers.h"
#include "tests/support/tensors.h"

namespace sparsed {
namespace {

using testing::GoldenTensors;
using testing::IsOk;
using testing::MaxError;

// Of the golden README for fp32.
constexpr double kLogitTolerance = 5e-4;

struct Network {
  ModelConfig config;
  std::unique_ptr<DenoisingModel> model;
};

absl::StatusOr<Network> LoadNetwork(const std::string& dir) {
  ASSIGN_OR_RETURN(ModelConfig config, LoadModelConfig(dir));
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(dir));
  ASSIGN_OR_RETURN(std::unique_ptr<DenoisingModel> model,
                   Families()[0].load(config, checkpoint, {}));
  return Network{std::move(config), std::move(model)};
}

class LogitsGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(LogitsGolden, MatchTheReferenceAtEveryLength) {
  GOLDEN_OR_SKIP(path, std::string(GetParam()) + "/logits.safetensors");
  ASSERT_OK_AND_ASSIGN(const Network network, LoadNetwork(path.parent_path().string()));
  const GoldenTensors golden(path);
  int compared = 0;
  for (const int64_t length : {1, 37, 128, 300}) {
    const std::string suffix = absl::StrCat("_", length);
    if (!golden.Has("ids" + suffix)) continue;
    const AttentionSchedule dense;
    StepAttention attention({{.length = length, .schedule = &dense}}, at::empty({0}, at::kInt), 1);
    const at::Tensor hidden =
        network.model->Forward(golden.Get("ids" + suffix).to(at::kLong), &attention);
    EXPECT_LE(MaxError(network.model->Logits(hidden), golden.Get("logits" + suffix)),
              kLogitTolerance)
        << length;
    ++compared;
  }
  EXPECT_GE(compared, 2);
}

INSTANTIATE_TEST_SUITE_P(Golden, LogitsGolden,
                         ::testing::Values("llada-tiny", "llada-tiny-gqa", "llada-tiny-mqa-tied"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// A row that stands before `step` of a SparseD trace.
Row RowAt(const nlohmann::json& facts, const at::Tensor& canvases, int32_t step,
          const ModelInfo& info) {
  Row row;
  const at::Tensor tokens = canvases[step].to(at::kInt).contiguous();
  row.request.canvas.tokens.assign(tokens.const_data_ptr<int32_t>(),
                                   tokens.const_data_ptr<int32_t>() + tokens.numel());
  row.request.canvas.open.assign(row.request.canvas.tokens.size(), 0);
  row.request.canvas.prompt_length = facts["prompt_len"];
  AttentionPlan plan =
      *FindAttentionPreset(facts["variant"] == "paper" ? "sparsed" : "sparsed_compat");
  plan.ratio = facts["select"];
  plan.skip = facts["skip"];
  plan.block_tokens = facts["block_size"];
  row.schedule = ResolveSchedule(plan, row.request.canvas, facts["steps"], info);
  row.lanes.resize(1);
  row.step = step;
  return row;
}

TEST(SparseForwardGolden, MasksAndSparseLogitsMatchEveryLladaTrace) {
  GOLDEN_OR_SKIP(path, "sparsed/traces.safetensors");
  const GoldenTensors golden(path);
  std::ifstream stream(path.parent_path() / "traces.json");
  const nlohmann::json cases = nlohmann::json::parse(stream);
  int compared = 0;
  for (const std::string checkpoint : {"llada-tiny", "llada-tiny-gqa"}) {
    ASSERT_OK_AND_ASSIGN(const Network network,
                         LoadNetwork((testing::GoldenDir() / checkpoint).string()));
    ModelInfo info;
    info.layers = network.config.layers;
    info.heads = network.config.heads;
    for (const auto& [name, facts] : cases.items()) {
      if (name.rfind(checkpoint + "/", 0) != 0 || !golden.Has(name + "/masks")) continue;
      SCOPED_TRACE(name);
      const at::Tensor canvases = golden.Get(name + "/canvas");
      const int32_t build_step = facts["build_step"];
      Row build = RowAt(facts, canvases, build_step, info);
      ASSERT_EQ(build.schedule.PhaseOf(build_step), StepPhase::kDenseAndBuild);
      const at::Tensor words = at::zeros({build.schedule.mask_bytes / 4}, at::kInt);
      BatchForward forward(*network.model, words, facts["mask_id"]);
      ASSERT_THAT(forward.Run({&build}), IsOk());

      const at::Tensor masks = golden.Get(name + "/masks");
      for (int64_t layer = 0; layer < masks.size(0); ++layer) {
        const int64_t count = build.schedule.words_per_layer();
        EXPECT_TRUE(
            at::equal(kernels::reference::UnpackMask(words.narrow(0, layer * count, count),
                                                     masks.size(1), masks.size(2), masks.size(3)),
                      masks[layer]))
            << "layer " << layer;
      }
      EXPECT_NEAR(forward.FinishBuild(0).density(), facts["density"].get<double>(), 1e-12);

      const int32_t sparse_step = facts["dense_steps"];
      Row sparse = RowAt(facts, canvases, sparse_step, info);
      ASSERT_EQ(sparse.schedule.PhaseOf(sparse_step), StepPhase::kSparse);
      StepAttention attention({{.length = sparse.request.canvas.length(),
                                .phase = StepPhase::kSparse,
                                .schedule = &sparse.schedule,
                                .pattern = &sparse.pattern}},
                              words, 1);
      const at::Tensor ids = canvases[sparse_step].to(at::kLong);
      const at::Tensor rows = golden.Get(name + "/sparse_step_rows").to(at::kLong);
      const at::Tensor logits =
          network.model->Logits(network.model->Forward(ids, &attention).index_select(0, rows));
      EXPECT_LE(MaxError(logits, golden.Get(name + "/sparse_step_logits")), kLogitTolerance);
      ++compared;
    }
  }
  EXPECT_GE(compared, testing::WholeGoldenSet() ? 9 : 3);
}

TEST(OtherFamiliesGolden, AreRefusedByName) {
  for (const std::string family : {"dream-tiny", "wan-tiny"}) {
    const auto config = testing::FindGolden(family + "/config.json");
    if (!config) continue;
    EXPECT_THAT(LoadModelConfig(config->parent_path().string()),
                testing::StatusIs(absl::StatusCode::kUnimplemented, ::testing::HasSubstr("llada")));
  }
}

}  // namespace
}  // namespace sparsed
