// SPDX-License-Identifier: Apache-2.0
// What the engine promises beyond the golden numbers: batching changes nothing, memory comes back,
// faults stay in their row.
#include "engine/engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/invalid_field.h"
#include "engine/decode/commit.h"
#include "engine/model/safetensors.h"
#include "tests/support/golden.h"
#include "tests/support/matchers.h"

namespace sparsed {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

std::string TinyModel() { return (testing::GoldenDir() / "llada-tiny").string(); }

std::unique_ptr<Engine> LoadOrDie(EngineOptions options) {
  absl::StatusOr<std::unique_ptr<Engine>> engine = LoadEngine(options);
  EXPECT_THAT(engine, IsOk());
  return *std::move(engine);
}

std::vector<int32_t> RandomPrompt(int32_t length, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < length; ++i) prompt.push_back(static_cast<int32_t>(random() % 480));
  return prompt;
}

struct Shape {
  int32_t prompt = 20;
  int32_t generation = 16;
  int32_t steps = 8;
  int32_t block_length = 16;
  std::string preset = "dense";
  double cfg_scale = 0;
  double temperature = 0;
};

Request MakeRequest(const Engine& engine, const Shape& shape, unsigned seed = 1) {
  Request request;
  request.canvas = Canvas::FromPrompt(RandomPrompt(shape.prompt, seed), shape.generation,
                                      engine.model().mask_token);
  request.policy.steps = shape.steps;
  request.policy.block_length = shape.block_length;
  request.policy.cfg_scale = shape.cfg_scale;
  request.policy.temperature = shape.temperature;
  request.policy.seed = seed;
  request.attention = *FindAttentionPreset(shape.preset);
  request.attention.block_tokens = 32;
  request.attention.guard = false;  // these canvases are too short for sparsity to pay
  return request;
}

// What a client sees of a request, in full precision.
using Log = std::vector<std::tuple<int32_t, int32_t, int32_t, float>>;

void Append(const StepResult& result, Log* log) {
  for (const TokenEdit& edit : result.committed) {
    log->emplace_back(result.step, edit.position, edit.token, edit.confidence);
  }
}

Log RunAlone(Engine* engine, const Request& request) {
  Log log;
  const absl::StatusOr<RequestId> id = engine->Admit(request);
  EXPECT_THAT(id, IsOk());
  for (bool finished = false; !finished;) {
    const std::vector<StepResult> results = engine->Step({*id});
    EXPECT_THAT(results[0].status, IsOk());
    if (!results[0].status.ok()) break;
    Append(results[0], &log);
    finished = results[0].finished;
  }
  return log;
}

std::vector<Request> MixedRequests(const Engine& engine) {
  const std::vector<Shape> shapes = {
      {.prompt = 20, .generation = 16, .steps = 8, .block_length = 16},
      {.prompt = 1, .generation = 1, .steps = 1, .block_length = 1},
      {.prompt = 150, .generation = 64, .steps = 16, .block_length = 32, .preset = "sparsed"},
      {.prompt = 77, .generation = 32, .steps = 10, .block_length = 16, .preset = "sparsed_compat"},
      {.prompt = 33, .generation = 24, .steps = 6, .block_length = 24, .cfg_scale = 1.5},
      {.prompt = 64,
       .generation = 32,
       .steps = 8,
       .block_length = 32,
       .preset = "sparsed",
       .cfg_scale = 0.5},
      {.prompt = 0, .generation = 40, .steps = 5, .block_length = 40, .temperature = 0.9},
      {.prompt = 140, .preset = "ba_att"},
      {.prompt = 113, .preset = "nabla", .cfg_scale = 0.5},
      {.prompt = 170, .preset = "window"},
      {.prompt = 190,
       .generation = 32,
       .block_length = 32,
       .preset = "relevance",
       .cfg_scale = 0.5},
  };
  std::vector<Request> requests;
  for (size_t i = 0; i < shapes.size(); ++i) {
    requests.push_back(MakeRequest(engine, shapes[i], static_cast<unsigned>(i)));
  }
  return requests;
}

TEST(EngineTest, PackedEqualsSoloBitForBit) {
  const auto engine = LoadOrDie({.model_dir = TinyModel(), .max_rows = 16});
  const std::vector<Request> requests = MixedRequests(*engine);
  std::vector<Log> alone;
  for (const Request& request : requests) alone.push_back(RunAlone(engine.get(), request));

  // Rows join at different times, so each step mixes lengths, phases and step numbers.
  std::map<RequestId, size_t> running;
  std::vector<Log> packed(requests.size());
  size_t next = 0;
  do {
    if (next < requests.size()) {
      ASSERT_OK_AND_ASSIGN(const RequestId id, engine->Admit(requests[next]));
      running[id] = next++;
    }
    std::vector<RequestId> ids;
    for (const auto& [id, index] : running) ids.push_back(id);
    for (const StepResult& result : engine->Step(ids)) {
      ASSERT_THAT(result.status, IsOk());
      EXPECT_EQ(result.batch_rows, static_cast<int32_t>(ids.size()));
      EXPECT_GE(result.batch_tokens, int64_t{result.batch_rows});
      Append(result, &packed[running[result.id]]);
      if (result.finished) running.erase(result.id);
    }
  } while (!running.empty() || next < requests.size());
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(packed[i], alone[i]) << "request " << i;
  EXPECT_EQ(engine->load().rows, 0);
  EXPECT_EQ(engine->load().mask_bytes_used, 0);
}

TEST(EngineTest, ThreadCountChangesNoToken) {
  Log one;
  Log two;
  for (const int threads : {1, 2}) {
    const auto engine = LoadOrDie({.model_dir = TinyModel(), .threads = threads});
    const Request request = MakeRequest(
        *engine, {.prompt = 150, .generation = 32, .block_length = 32, .preset = "sparsed"});
    for (const auto& [step, position, token, confidence] : RunAlone(engine.get(), request)) {
      (threads == 1 ? one : two).emplace_back(step, position, token, 0.0f);
    }
  }
  EXPECT_EQ(one, two);
}

TEST(EngineTest, SeedDecidesSampledTokens) {
  const auto engine = LoadOrDie({.model_dir = TinyModel()});
  const auto tokens = [&](uint64_t seed) {
    Request request = MakeRequest(*engine, {.temperature = 1.0});
    request.policy.seed = seed;
    return RunAlone(engine.get(), request);
  };
  EXPECT_EQ(tokens(1), tokens(1));
  EXPECT_NE(tokens(1), tokens(2));
}

TEST(EngineTest, PhasesFollowThePlanAndReportDensityAndMass) {
  const auto engine = LoadOrDie({.model_dir = TinyModel()});
  const Request request = MakeRequest(
      *engine,
      {.prompt = 150, .generation = 64, .steps = 20, .block_length = 64, .preset = "sparsed"});
  ASSERT_OK_AND_ASSIGN(const RequestId id, engine->Admit(request));
  EXPECT_EQ(engine->load().mask_bytes_used,
            engine->MaskBytes(request) / 64 * 64 + (engine->MaskBytes(request) % 64 != 0 ? 64 : 0));
  for (int step = 0; step < 20; ++step) {
    const StepResult result = engine->Step({id})[0];
    ASSERT_THAT(result.status, IsOk());
    const StepPhase expected = step < 3    ? StepPhase::kDense
                               : step == 3 ? StepPhase::kDenseAndBuild
                                           : StepPhase::kSparse;
    EXPECT_EQ(result.phase, expected) << step;
    EXPECT_EQ(result.density<1, step> 3);
    EXPECT_EQ(result.retained_mass.has_value(), step >= 3);
    if (step >= 3) {
      EXPECT_GT(*result.retained_mass, 0.3);
      EXPECT_LE(*result.retained_mass, 1.0);
    }
    EXPECT_EQ(result.mask_build_seconds > 0, step == 3);
  }
}

TEST(EngineTest, ARebuildingPlanReportsAMaskInEveryStep) {
  const auto engine = LoadOrDie({.model_dir = TinyModel()});
  const Request request = MakeRequest(*engine, {.prompt = 150, .steps = 4, .preset = "ba_att"});
  ASSERT_OK_AND_ASSIGN(const RequestId id, engine->Admit(request));
  for (int step = 0; step < 4; ++step) {
    const StepResult result = engine->Step({id})[0];
    ASSERT_THAT(result.status, IsOk());
    EXPECT_EQ(result.phase, StepPhase::kRebuild);
    EXPECT_DOUBLE_EQ(result.density, 0.5);  // 3 of 6 blocks
    EXPECT_GT(*result.retained_mass, 0.3);
    EXPECT_LE(*result.retained_mass, 1.0);
    EXPECT_GT(result.mask_build_seconds, 0);
    ASSERT_EQ(result.heads.size(), size_t(engine->model().layers * engine->model().heads));
    for (const HeadSparsity& head : result.heads) EXPECT_DOUBLE_EQ(head.density, 0.5);
  }
}

TEST(EngineTest, AMassFloorIsReachedByEveryHead) {
  const auto engine = LoadOrDie({.model_dir = TinyModel()});
  Request request = MakeRequest(*engine, {.prompt = 400, .steps = 4, .preset = "sparsed"});
  request.attention.ratio = 0.01;
  double loose_density = 0;
  for (const double floor : {0.0, 0.9}) {
    request.attention.min_retained_mass = floor;
    ASSERT_OK_AND_ASSIGN(const RequestId id, engine->Admit(request));
    const StepResult result = engine->Step({id})[0];
    engine->Cancel(id);
    ASSERT_FALSE(result.heads.empty());
    for (const HeadSparsity& head : result.heads) EXPECT_GE(head.retained_mass, floor);
    if (floor == 0) {
      loose_density = result.heads[0].density;
    } else {
      EXPECT_GT(result.heads[0].density, loose_density);
    }
  }
}

TEST(EngineTest, RelevanceSelectsForTheGenerationAndForWhatItDependsOn) {
  const auto engine = LoadOrDie({.model_dir = TinyModel()});
  Request request = MakeRequest(*engine, {.prompt = 400, .steps = 4, .preset = "relevance"});
  request.attention.skip = 0;
  request.attention.relevant_share = 0.1;
  ASSERT_OK_AND_ASSIGN(const RequestId id, engine->Admit(request));
  const StepResult result = engine->Step({id})[0];
  ASSERT_EQ(result.phase, StepPhase::kDenseAndBuild);
  ASSERT_EQ(result.heads.size(), 2u * 4u);
  for (size_t i = 0; i < result.heads.size(); ++i) {
    // 13 blocks, the last of them open. A selecting row keeps 2 of 12 prompt blocks and 1. Nothing
    // reads the prompt after the last layer; before it, ceil(0.1 * 13) more rows select.
    const double selecting = i < 4 ? 1 + 2 : 1;
    EXPECT_DOUBLE_EQ(result.heads[i].density, (selecting * 3 + (13 - selecting)) / (13 * 13)) << i;
    EXPECT_GT(result.heads[i].retained_mass, 0);
  }
}

TEST(EngineTest, TheGuardRunsDenseWhatSparsityWouldNotSpeedUp) {
  const auto engine = LoadOrDie({.model_dir = TinyModel()});
  Request request = MakeRequest(*engine, {.prompt = 150, .steps = 4, .preset = "nabla"});
  request.attention.guard = true;
  request.attention.mass = 1;  // keeps all blocks: known only once a mask is built
  ASSERT_OK_AND_ASSIGN(const RequestId id, engine->Admit(request));
  StepResult result = engine->Step({id})[0];
  EXPECT_NE(result.guard, GuardReason::kNone);
  EXPECT_EQ(engine->load().mask_bytes_used, 0);
  result = engine->Step({id})[0];
  EXPECT_EQ(result.phase, StepPhase::kDense);
  EXPECT_EQ(result.density, 1.0);
  EXPECT_NE(result.guard, GuardReason::kNone);
  engine->Cancel(id);

  request.attention = *FindAttentionPreset("sparsed");
  request.attention.ratio = 1;  // known beforehand
  EXPECT_EQ(engine->MaskBytes(request), 0);
  request.attention.guard = false;
  EXPECT_GT(engine->MaskBytes(request), 0);
  const auto unguarded = LoadOrDie({.model_dir = TinyModel(), .guard = false});
  request.attention.guard = true;
  EXPECT_GT(unguarded->MaskBytes(request), 0);
}

TEST(EngineTest, RatioOneKeepsAllBlocksAndAllMass) {
  const auto engine = LoadOrDie({.model_dir = TinyModel()});
  Request request = MakeRequest(*engine, {.prompt = 150, .steps = 8, .preset = "sparsed"});
  request.attention.ratio = 1;
  ASSERT_OK_AND_ASSIGN(const RequestId id, engine->Admit(request));
  engine->Step({id});
  const StepResult sparse = engine->Step({id})[0];
  ASSERT_EQ(sparse.phase, StepPhase::kSparse);
  EXPECT_EQ(sparse.density, 1.0);
  EXPECT_LE(*sparse.retained_mass, 1.0);
  EXPECT_GT(*sparse.retained_mass, 1.0 - 1e-5);
}

TEST(EngineTest, ProvisionalEditsCoverTheOpenPositionsOfTheBlock) {
  const auto engine = LoadOrDie({.model_dir = TinyModel()});
  Request request = MakeRequest(*engine, {.generation = 16, .steps = 4, .block_length = 16});
  request.want_provisional = true;
  ASSERT_OK_AND_ASSIGN(const RequestId id, engine->Admit(request));
  const StepResult result = engine->Step({id})[0];
  EXPECT_EQ(result.committed.size(), 4u);
  EXPECT_EQ(result.provisional.size(), 12u);
  for (const TokenEdit& open : result.provisional) {
    for (const TokenEdit& committed : result.committed) {
      EXPECT_NE(open.position, committed.position);
      EXPECT_LE(open.confidence, committed.confidence);
    }
  }
}

TEST(EngineTest, EndTokenClosesWhatFollowsAndFinishesEarly) {
  const auto engine = LoadOrDie({.model_dir = TinyModel()});
  Request request = MakeRequest(*engine, {.generation = 32, .steps = 32, .block_length = 32});
  // Make the first committed token an end token: everything after it closes at once.
  const Log free_run = RunAlone(engine.get(), request);
  request.policy.end_tokens = {std::get<2>(free_run[0])};
  const int32_t end_position = std::get<1>(free_run[0]);
  ASSERT_OK_AND_ASSIGN(const RequestId id, engine->Admit(request));
  StepResult result;
  int steps = 0;
  do {
    result = engine->Step({id})[0];
    ASSERT_THAT(result.status, IsOk());
    if (steps == 0) {
      EXPECT_EQ(result.committed.size(), static_cast<size_t>(20 + 32 - end_position));
    }
    ++steps;
  } while (!result.finished);
  EXPECT_EQ(result.finish_reason, FinishReason::kEndOfText);
  EXPECT_LT(steps, 32);
}

TEST(EngineTest, CancelAtEveryPhaseReturnsRowAndMask) {
  const auto engine = LoadOrDie({.model_dir = TinyModel()});
  for (int steps_before_cancel = 0; steps_before_cancel < 6; ++steps_before_cancel) {
    ASSERT_OK_AND_ASSIGN(
        const RequestId id,
        engine->Admit(MakeRequest(*engine, {.prompt = 100, .steps = 16, .preset = "sparsed"})));
    for (int i = 0; i < steps_before_cancel; ++i) engine->Step({id});
    EXPECT_GT(engine->load().mask_bytes_used, 0);
    engine->Cancel(id);
    engine->Cancel(id);
    EXPECT_EQ(engine->load().rows, 0);
    EXPECT_EQ(engine->load().mask_bytes_used, 0);
    EXPECT_THAT(engine->Step({id})[0].status, StatusIs(absl::StatusCode::kNotFound, HasSubstr("")));
  }
}

TEST(EngineTest, AdmissionStopsAtRowsAndMaskBytesAndLeavesNothingBehind) {
  const auto engine =
      LoadOrDie({.model_dir = TinyModel(), .mask_budget_bytes = 1024, .max_rows = 2});
  const Request small = MakeRequest(*engine, {});
  ASSERT_OK_AND_ASSIGN(const RequestId first, engine->Admit(small));
  ASSERT_OK_AND_ASSIGN(const RequestId second, engine->Admit(small));
  EXPECT_THAT(engine->Admit(small),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("2 rows")));
  engine->Cancel(first);
  engine->Cancel(second);

  // Two lanes whose second mask does not fit: the first one's bytes must come back.
  const Request guided = MakeRequest(
      *engine,
      {.prompt = 270, .generation = 32, .block_length = 32, .preset = "sparsed", .cfg_scale = 1});
  ASSERT_LE(engine->MaskBytes(guided), 1024);
  const Request single = MakeRequest(
      *engine, {.prompt = 400, .generation = 32, .block_length = 32, .preset = "sparsed"});
  ASSERT_GT(engine->MaskBytes(guided) + engine->MaskBytes(single), 1024);
  ASSERT_OK_AND_ASSIGN(const RequestId running, engine->Admit(single));
  const int64_t used = engine->load().mask_bytes_used;
  EXPECT_THAT(engine->Admit(guided), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("")));
  EXPECT_EQ(engine->load().mask_bytes_used, used);
  EXPECT_EQ(engine->load().rows, 1);
  engine->Cancel(running);

  const Request huge = MakeRequest(*engine, {.prompt = 2000, .preset = "sparsed"});
  EXPECT_THAT(engine->Validate(huge),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("whole mask budget")));
}

TEST(EngineTest, ValidateNamesTheFieldAtFault) {
  const auto engine = LoadOrDie({.model_dir = TinyModel()});
  const auto path = [&](const Request& request) {
    return InvalidFieldPath(engine->Validate(request)).value_or("accepted");
  };
  EXPECT_EQ(path(MakeRequest(*engine, {.prompt = 4090})), "decoding.gen_length");
  Request request = MakeRequest(*engine, {});
  request.canvas.tokens[3] = 512;
  EXPECT_EQ(path(request), "canvas.tokens");
  request.canvas.tokens[3] = -1;
  EXPECT_EQ(path(request), "canvas.tokens");
  request = MakeRequest(*engine, {});
  request.canvas.open.assign(request.canvas.open.size(), 0);
  EXPECT_THAT(engine->Validate(request),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no position is open")));
}

// llada-tiny with NaN in the embedding of one token: who uses it fails, who does not is untouched.
class PoisonedModel {
 public:
  static constexpr int32_t kToken = 7;

  PoisonedModel()
      : dir_(std::filesystem::temp_directory_path() /
             ("sparsed_nan_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(dir_);
    std::filesystem::copy_file(std::filesystem::path(TinyModel()) / "config.json",
                               dir_ / "config.json");
    std::ifstream in(std::filesystem::path(TinyModel()) / "model.safetensors", std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const auto file = SafetensorsFile::Open(TinyModel() + "/model.safetensors");
    const TensorView* wte = file->Find("model.transformer.wte.weight");
    const std::byte* start = file->tensors()[0].data;
    for (const TensorView& view : file->tensors()) start = std::min(start, view.data);
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), 8);
    const size_t row = static_cast<size_t>(wte->shape[1]) * 4;
    const float nan = std::nanf("");
    std::memcpy(bytes.data() + 8 + header + static_cast<size_t>(wte->data - start) + kToken * row,
                &nan, 4);
    std::ofstream(dir_ / "model.safetensors", std::ios::binary) << bytes;
  }
  ~PoisonedModel() { std::filesystem::remove_all(dir_); }
  std::string dir() const { return dir_.string(); }

 private:
  const std::filesystem::path dir_;
};

TEST(EngineTest, NanFailsItsRowOnly) {
  const PoisonedModel poisoned;
  const auto engine = LoadOrDie({.model_dir = poisoned.dir()});
  Request good = MakeRequest(*engine, {});
  for (int32_t& token : good.canvas.tokens) {
    if (token == PoisonedModel::kToken) token = 8;
  }
  Request bad = good;
  bad.canvas.tokens[2] = PoisonedModel::kToken;
  ASSERT_OK_AND_ASSIGN(const RequestId bad_id, engine->Admit(bad));
  ASSERT_OK_AND_ASSIGN(const RequestId good_id, engine->Admit(good));
  const std::vector<StepResult> results = engine->Step({bad_id, good_id});
  EXPECT_THAT(results[0].status, StatusIs(absl::StatusCode::kInternal, HasSubstr("NaN")));
  EXPECT_TRUE(results[0].not_finite);
  EXPECT_THAT(results[1].status, IsOk());
  EXPECT_EQ(results[1].committed.size(), 2u);
  EXPECT_EQ(engine->load().rows, 1);
}

TEST(LoadEngineTest, GenerationConfigReachesTheModelInfo) {
  const std::filesystem::path dir =
      std::filesystem::temp_directory_path() / ("sparsed_defaults_" + std::to_string(::getpid()));
  std::filesystem::create_directories(dir);
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::copy_file(std::filesystem::path(TinyModel()) / name, dir / name);
  }
  std::ofstream(dir / "generation_config.json")
      << R"({"gen_length": 64, "steps": 16, "block_length": 16, "temperature": 0.7})";
  const auto engine = LoadOrDie({.model_dir = dir.string()});
  std::filesystem::remove_all(dir);
  EXPECT_EQ(engine->model().generation.gen_length, 64);
  EXPECT_EQ(engine->model().generation.steps, 16);
  EXPECT_EQ(engine->model().generation.block_length, 16);
  EXPECT_EQ(engine->model().generation.temperature, 0.7);
}

TEST(LoadEngineTest, ReportsProgressAndObeysAStop) {
  std::vector<double> shares;
  LoadOrDie({.model_dir = TinyModel(), .on_progress = [&](double share) {
               shares.push_back(share);
               return true;
             }});
  ASSERT_FALSE(shares.empty());
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_NEAR(shares.back(), 1.0, 1e-9);
  EXPECT_THAT(LoadEngine({.model_dir = TinyModel(), .on_progress = [](double) { return false; }}),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("abandoned")));
}

TEST(LoadEngineTest, BadOptionsAndFoldersAreErrors) {
  EXPECT_THAT(LoadEngine({.model_dir = "/nonexistent"}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent")));
  EXPECT_THAT(LoadEngine({.model_dir = TinyModel(), .device = "tpu"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("must be cpu or cuda")));
  EXPECT_THAT(LoadEngine({.model_dir = TinyModel(), .max_rows = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_rows")));
}

}  // namespace
}  // namespace sparsed
