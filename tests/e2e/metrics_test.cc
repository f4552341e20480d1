// SPDX-License-Identifier: Apache-2.0
// /metrics agrees with what clients were told and with what they measured themselves.
#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/e2e/live_server.h"
#include "tests/e2e/recording.h"

namespace sparsed::testing {
namespace {

// What a request may cost outside the server's own clock: loopback transport, (de)serialising and a
// few thread switches. Milliseconds when the machine is idle, and it need not be.
constexpr double kTransportSeconds = 0.25;

// Label value of a phase.
std::string PhaseLabel(v1::Phase phase) {
  switch (phase) {
    case v1::PHASE_DENSE:
      return "dense";
    case v1::PHASE_BUILD:
      return "build";
    case v1::PHASE_SPARSE:
      return "sparse";
    case v1::PHASE_REBUILD:
      return "rebuild";
    default:
      return "unknown";
  }
}

// How much series grew between two scrapes.
class Growth {
 public:
  Growth(Exposition before, Exposition after)
      : before_(std::move(before)), after_(std::move(after)) {}

  double Of(const std::string& name, const std::string& label = "",
            const std::string& value = "") const {
    return after_.Value(name, label, value) - before_.Value(name, label, value);
  }
  double Count(const std::string& histogram, const std::string& label = "",
               const std::string& value = "") const {
    return Of(histogram + "_count", label, value);
  }
  double Sum(const std::string& histogram, const std::string& label = "",
             const std::string& value = "") const {
    return Of(histogram + "_sum", label, value);
  }

 private:
  const Exposition before_;
  const Exposition after_;
};

// What responses say, added up.
struct Told {
  double requests = 0;
  double queue_seconds = 0;
  double total_seconds = 0;
  double first_commit_seconds = 0;
  double client_seconds = 0;
  double client_first_commit_seconds = 0;
  double steps = 0;
  double canvas_steps = 0;  // canvas tokens x steps
  double committed = 0;
  double prompt_tokens = 0;
  double guarded = 0;
  double mask_builds = 0;
  double mask_build_seconds = 0;
  std::map<std::string, double> phase_steps;
  std::map<std::string, double> phase_seconds;
  std::map<std::string, double> preset_steps;
  std::map<std::string, double> preset_density;  // density x steps
  std::map<std::string, double> preset_mass;     // of all masks

  void Add(const Recording& recording) {
    const v1::GenerateResponse& response = recording.finished;
    const std::string& preset = response.resolved().attention().preset();
    const double ran = response.usage().steps();
    requests += 1;
    queue_seconds += response.timings().queue_seconds();
    total_seconds += response.timings().total_seconds();
    first_commit_seconds += response.timings().first_commit_seconds();
    client_seconds += recording.wall_seconds;
    client_first_commit_seconds += recording.first_commit_seconds;
    steps += ran;
    canvas_steps += ran * (response.usage().prompt_tokens() + response.token_ids_size());
    committed += response.token_ids_size();
    prompt_tokens += response.usage().prompt_tokens();
    mask_build_seconds += response.timings().mask_build_seconds();
    preset_steps[preset] += ran;
    preset_density[preset] += ran * response.sparsity().mean_density();
    guarded += response.sparsity().has_guard() ? 1 : 0;
    AddMasks(recording, preset);
    for (const v1::PhaseTime& phase : response.timings().phases()) {
      phase_steps[PhaseLabel(phase.phase())] += phase.steps();
      phase_seconds[PhaseLabel(phase.phase())] += phase.seconds();
    }
  }

  void AddMasks(const Recording& recording, const std::string& preset) {
    double& mass = preset_mass[preset];  // 0 for a preset that builds none
    for (const v1::Progress& progress : recording.progress) {
      if (progress.phase() != v1::PHASE_BUILD && progress.phase() != v1::PHASE_REBUILD) continue;
      mask_builds += 1;
      mass += progress.retained_mass();
    }
  }
};

class MetricsTest : public ::testing::Test {
 protected:
  // One after the other, so that no step is shared: presets of all kinds, a request that stops
  // early, one that the guard runs dense and one that is refused.
  Told RunRequests() {
    Told told;
    told.Add(Run(Ask("What is 21 + 34?")));
    for (const char* preset : {"sparsed", "sparsed_compat", "ba_att", "nabla", "window"}) {
      v1::GenerateRequest request = Story();
      request.mutable_attention()->set_preset(preset);
      request.mutable_attention()->set_block_tokens(32);
      request.mutable_attention()->set_guard(false);
      told.Add(Run(request));
    }
    v1::GenerateRequest guarded = Story();
    guarded.mutable_attention()->set_preset("sparsed_code");  // one block
    told.Add(Run(guarded));
    v1::GenerateRequest refused = Story();
    refused.mutable_decoding()->set_steps(0);
    EXPECT_EQ(Record(server_.stub(), refused).status.error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);
    return told;
  }

  Recording Run(const v1::GenerateRequest& request) {
    Recording recording = Record(server_.stub(), request);
    EXPECT_TRUE(recording.status.ok()) << recording.status.error_message();
    return recording;
  }

  LiveServer server_;
};

void ExpectCountsAgree(const Growth& growth, const Told& told) {
  EXPECT_EQ(growth.Of("sparsed_requests_total", "code", "OK"), told.requests);
  EXPECT_EQ(growth.Of("sparsed_requests_total", "code", "INVALID_ARGUMENT"), 1);
  EXPECT_EQ(growth.Of("sparsed_committed_tokens_total"), told.committed);
  EXPECT_EQ(growth.Of("sparsed_prompt_tokens_total"), told.prompt_tokens);
  EXPECT_EQ(growth.Of("sparsed_attention_guard_total", "reason", "short_canvas"), 1);
  EXPECT_EQ(growth.Of("sparsed_attention_guard_total", "reason", "high_density"), 0);
  EXPECT_EQ(told.guarded, 1);
  EXPECT_EQ(growth.Of("sparsed_mask_builds_total"), told.mask_builds);
  EXPECT_EQ(growth.Of("sparsed_mask_frees_total"), told.mask_builds);
  EXPECT_EQ(growth.Count("sparsed_mask_build_seconds"), told.mask_builds);
  for (const char* name : {"request_seconds", "request_queue_seconds", "first_commit_seconds"}) {
    EXPECT_EQ(growth.Count(absl::StrCat("sparsed_", name)), told.requests) << name;
  }
  EXPECT_EQ(growth.Count("sparsed_tokens_per_forward"), told.steps);
  EXPECT_EQ(growth.Sum("sparsed_tokens_per_forward"), told.committed);
  // No step was shared.
  EXPECT_EQ(growth.Sum("sparsed_batch_rows"), told.steps);
  EXPECT_EQ(growth.Sum("sparsed_batch_tokens"), told.canvas_steps);
  EXPECT_EQ(growth.Count("sparsed_inter_commit_seconds"), told.steps - told.requests);
}

void ExpectPhasesAgree(const Growth& growth, const Told& told) {
  ASSERT_EQ(told.phase_steps.size(), 4u);
  for (const auto& [phase, steps] : told.phase_steps) {
    EXPECT_EQ(growth.Of("sparsed_denoising_steps_total", "phase", phase), steps) << phase;
    EXPECT_EQ(growth.Count("sparsed_step_seconds", "phase", phase), steps) << phase;
    EXPECT_NEAR(growth.Sum("sparsed_step_seconds", "phase", phase), told.phase_seconds.at(phase),
                1e-6)
        << phase;
  }
}

void ExpectSparsityAgrees(const Growth& growth, const Told& told) {
  ASSERT_EQ(told.preset_steps.size(), 7u);
  for (const auto& [preset, steps] : told.preset_steps) {
    EXPECT_EQ(growth.Count("sparsed_attention_density", "preset", preset), steps) << preset;
    EXPECT_NEAR(growth.Sum("sparsed_attention_density", "preset", preset),
                told.preset_density.at(preset), 1e-6)
        << preset;
    EXPECT_NEAR(growth.Sum("sparsed_attention_retained_mass", "preset", preset),
                told.preset_mass.at(preset), 1e-6)
        << preset;
  }
}

void ExpectTimesAgree(const Growth& growth, const Told& told) {
  EXPECT_NEAR(growth.Sum("sparsed_request_seconds"), told.total_seconds, 1e-6);
  EXPECT_NEAR(growth.Sum("sparsed_request_queue_seconds"), told.queue_seconds, 1e-6);
  EXPECT_NEAR(growth.Sum("sparsed_first_commit_seconds"), told.first_commit_seconds, 1e-6);
  EXPECT_NEAR(growth.Sum("sparsed_mask_build_seconds"), told.mask_build_seconds, 1e-6);
  // The client's clock runs for all of the server's time, and for little more.
  const double slack = kTransportSeconds * told.requests;
  EXPECT_LE(growth.Sum("sparsed_request_seconds"), told.client_seconds);
  EXPECT_GE(growth.Sum("sparsed_request_seconds"), told.client_seconds - slack);
  EXPECT_LE(growth.Sum("sparsed_first_commit_seconds"), told.client_first_commit_seconds);
  EXPECT_GE(growth.Sum("sparsed_first_commit_seconds"), told.client_first_commit_seconds - slack);
}

TEST_F(MetricsTest, AgreeWithResponsesAndTheClientsClock) {
  Run(Story());  // whatever the first request alone pays, and a baseline that is not zero
  Exposition before = server_.Scrape();
  const Told told = RunRequests();
  const Growth growth(std::move(before), server_.Scrape());
  ExpectCountsAgree(growth, told);
  ExpectPhasesAgree(growth, told);
  ExpectSparsityAgrees(growth, told);
  ExpectTimesAgree(growth, told);
  const Exposition after = server_.Scrape();
  EXPECT_EQ(after.Value("sparsed_requests_running"), 0);
  EXPECT_EQ(after.Value("sparsed_requests_waiting"), 0);
  EXPECT_EQ(after.Value("sparsed_mask_bytes_used"), 0);
  EXPECT_EQ(after.Value("sparsed_mask_bytes_budget"), server_.Load().mask_bytes_budget());
}

TEST_F(MetricsTest, AMaskIsCountedWhileItIsHeld) {
  OpenStream stream(server_.stub(), LongStory("holder"));
  ASSERT_TRUE(stream.ReadUntil(v1::PHASE_SPARSE));
  const Exposition running = server_.Scrape();
  EXPECT_EQ(running.Value("sparsed_requests_running"), 1);
  EXPECT_GT(running.Value("sparsed_mask_bytes_used"), 0);
  EXPECT_EQ(running.Value("sparsed_mask_bytes_used"), server_.Load().mask_bytes_used());
  EXPECT_EQ(running.Value("sparsed_mask_builds_total"), 1);
  EXPECT_EQ(running.Value("sparsed_mask_frees_total"), 0);
  EXPECT_TRUE(server_.Cancel("holder"));
  EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(server_.Scrape().Value("sparsed_mask_frees_total"), 1);
}

std::set<std::string> SeriesOf(const Exposition& exposition) {
  std::set<std::string> names;
  for (const auto& [name, value] : exposition.series()) names.insert(name);
  return names;
}

TEST_F(MetricsTest, RequestsAddNoSeries) {
  const std::set<std::string> before = SeriesOf(server_.Scrape());
  v1::GenerateRequest request = Story();
  request.set_request_id("a-name-of-the-client");
  Run(request);
  request.mutable_attention()->set_preset("no-such-preset");
  EXPECT_FALSE(Record(server_.stub(), request).status.ok());
  EXPECT_EQ(SeriesOf(server_.Scrape()), before);
}

// Values of one label in the names of series.
std::set<std::string> LabelValues(const Exposition& exposition, const std::string& label) {
  std::set<std::string> values;
  for (const auto& [series, value] : exposition.series()) {
    const std::vector<std::string> parts = absl::StrSplit(series, label + "=\"");
    for (size_t i = 1; i < parts.size(); ++i) values.insert(parts[i].substr(0, parts[i].find('"')));
  }
  return values;
}

TEST_F(MetricsTest, LabelsAreTheKnownOnes) {
  const Exposition exposition = server_.Scrape();
  std::set<std::string> presets;
  const v1::GetModelResponse model = server_.Model();
  for (const v1::Preset& preset : model.presets()) presets.insert(preset.name());
  EXPECT_EQ(LabelValues(exposition, "preset"), presets);
  EXPECT_EQ(LabelValues(exposition, "phase"),
            (std::set<std::string>{"build", "dense", "queued", "rebuild", "running", "sparse"}));
  EXPECT_EQ(LabelValues(exposition, "reason"),
            (std::set<std::string>{"high_density", "short_canvas"}));
  EXPECT_EQ(LabelValues(exposition, "code").size(), 17u);  // all codes of gRPC
}

TEST_F(MetricsTest, EveryFamilyHasHelpAndType) {
  std::map<std::string, int> help;
  std::map<std::string, int> type;
  std::istringstream lines(server_.ScrapeText());
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (line.rfind("# HELP ", 0) == 0 && words.size() > 3) ++help[words[2]];
    if (line.rfind("# TYPE ", 0) == 0 && words.size() == 4) ++type[words[2]];
  }
  EXPECT_GT(type.size(), 20u);
  EXPECT_EQ(help, type);
  for (const auto& [family, count] : type) EXPECT_EQ(count, 1) << family;
}

}  // namespace
}  // namespace sparsed::testing
