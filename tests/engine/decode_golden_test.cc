// SPDX-License-Identifier: Apache-2.0
// Whole decodes through the Engine against the references' traces, token for token at every step.
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ATen/ATen.h>

#include "engine/decode/commit.h"
#include "engine/engine.h"
#include "tests/support/golden.h"
#include "tests/support/matchers.h"
#include "tests/support/tensors.h"

namespace sparsed {
namespace {

using testing::GoldenTensors;
using testing::IsOk;

std::vector<int32_t> Row(const at::Tensor& canvases, int64_t step) {
  const at::Tensor row = canvases[step].to(at::kInt).contiguous();
  return {row.const_data_ptr<int32_t>(), row.const_data_ptr<int32_t>() + row.numel()};
}

// The request that a trace records: its start canvas says what is open.
Request RequestOf(const nlohmann::json& facts, const at::Tensor& canvases) {
  Request request;
  request.canvas.tokens = Row(canvases, 0);
  request.canvas.prompt_length = facts["prompt_len"];
  for (const int32_t token : request.canvas.tokens) {
    request.canvas.open.push_back(token == facts["mask_id"].get<int32_t>() ? 1 : 0);
  }
  request.policy.steps = facts["steps"];
  request.policy.block_length = facts["block_length"];
  request.policy.cfg_scale = facts.value("cfg_scale", 0.0);
  return request;
}

// Steps the request to its end; after each step the canvas must be the trace's.
void ExpectSameDecode(Engine* engine, Request request, const at::Tensor& canvases) {
  Canvas canvas = request.canvas;
  const int32_t mask_token = engine->model().mask_token;
  const absl::StatusOr<RequestId> id = engine->Admit(std::move(request));
  ASSERT_THAT(id, IsOk());
  int64_t steps = 0;
  for (bool finished = false; !finished; ++steps) {
    const std::vector<StepResult> results = engine->Step({*id});
    ASSERT_EQ(results.size(), 1u);
    ASSERT_THAT(results[0].status, IsOk());
    CommitEdits(results[0].committed, mask_token, &canvas);
    ASSERT_LT(steps + 1, canvases.size(0));
    ASSERT_EQ(canvas.tokens, Row(canvases, steps + 1)) << "after step " << steps;
    finished = results[0].finished;
  }
  // Steps after the last position was committed change nothing.
  for (int64_t step = steps; step < canvases.size(0); ++step) {
    EXPECT_EQ(canvas.tokens, Row(canvases, step));
  }
  EXPECT_EQ(engine->load().rows, 0);
  EXPECT_EQ(engine->load().mask_bytes_used, 0);
}

nlohmann::json ReadJson(const std::filesystem::path& path) {
  std::ifstream stream(path);
  return nlohmann::json::parse(stream);
}

absl::StatusOr<std::unique_ptr<Engine>> LoadGolden(const std::string& checkpoint) {
  return LoadEngine({.model_dir = (testing::GoldenDir() / checkpoint).string(), .guard = false});
}

class DenseDecode : public ::testing::TestWithParam<const char*> {};

TEST_P(DenseDecode, EveryTraceMatchesTokenForToken) {
  const std::string checkpoint = GetParam();
  GOLDEN_OR_SKIP(path, checkpoint + "/traces.safetensors");
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine, LoadGolden(checkpoint));
  const GoldenTensors golden(path);
  const nlohmann::json cases = ReadJson(path.parent_path() / "traces.json")["cases"];
  ASSERT_GE(cases.size(), 2u);
  for (const auto& [name, facts] : cases.items()) {
    SCOPED_TRACE(name);
    const at::Tensor canvases = golden.Get(name + "/canvas");
    ExpectSameDecode(engine.get(), RequestOf(facts, canvases), canvases);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, DenseDecode,
                         ::testing::Values("llada-tiny", "llada-tiny-gqa", "llada-tiny-mqa-tied"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(SparseDecode, EveryLladaTraceMatchesTokenForToken) {
  GOLDEN_OR_SKIP(path, "sparsed/traces.safetensors");
  const GoldenTensors golden(path);
  const nlohmann::json cases = ReadJson(path.parent_path() / "traces.json");
  int compared = 0;
  for (const std::string checkpoint : {"llada-tiny", "llada-tiny-gqa"}) {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine, LoadGolden(checkpoint));
    for (const auto& [name, facts] : cases.items()) {
      if (name.rfind(checkpoint + "/", 0) != 0 || !golden.Has(name + "/canvas")) continue;
      SCOPED_TRACE(name);
      const at::Tensor canvases = golden.Get(name + "/canvas");
      Request request = RequestOf(facts, canvases);
      const bool paper = facts["variant"] == "paper";
      ASSERT_OK_AND_ASSIGN(request.attention,
                           FindAttentionPreset(paper ? "sparsed" : "sparsed_compat"));
      request.attention.ratio = facts["select"];
      request.attention.skip = facts["skip"];
      request.attention.block_tokens = facts["block_size"];
      EXPECT_GT(engine->MaskBytes(request), 0);
      ExpectSameDecode(engine.get(), std::move(request), canvases);
      ++compared;
    }
  }
  EXPECT_GE(compared, testing::WholeGoldenSet() ? 9 : 3);
}

}  // namespace
}  // namespace sparsed
