// SPDX-License-Identifier: Apache-2.0
#include "server/metrics.h"

#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/attention/plan.h"
#include "tests/support/exposition.h"
#include "tests/support/matchers.h"

namespace sparsed {
namespace {

using ::sparsed::testing::Exposition;
using ::sparsed::testing::IsOk;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ExposedType(const std::string& kind) {
  if (kind == "Counter") return "counter";
  return kind == "Gauge" || kind == "Info" ? "gauge" : "histogram";
}

TEST(MetricsTest, EveryMetricOfTheCatalogueIsInTheFirstScrape) {
  Metrics metrics;
  metrics.build_info.Set({{"version", "1.2.3"}});
  ASSERT_OK_AND_ASSIGN(const Exposition exposition, Exposition::Parse(metrics.Expose()));
  std::set<std::string> names;
  for (const Metrics::Entry& entry : Metrics::Catalogue()) {
    EXPECT_THAT(entry.name, StartsWith("sparsed_"));
    EXPECT_EQ(exposition.Type(entry.name), ExposedType(entry.kind)) << entry.name;
    EXPECT_FALSE(entry.help.empty()) << entry.name;
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name << " is there twice";
    EXPECT_EQ(entry.kind == "Counter", entry.name.ends_with("_total")) << entry.name;
  }
  EXPECT_EQ(exposition.Value("sparsed_build_info", "version", "1.2.3"), 1);
}

TEST(MetricsTest, PresetsHaveASeriesEach) {
  Metrics metrics;
  ASSERT_OK_AND_ASSIGN(const Exposition exposition, Exposition::Parse(metrics.Expose()));
  for (const AttentionPreset& preset : AttentionPresets()) {
    EXPECT_EQ(exposition.Count("sparsed_attention_density", "preset", preset.plan.preset), 0);
  }
}

TEST(MetricsTest, PhasesAndGuardReasonsHaveASeriesEach) {
  Metrics metrics;
  ASSERT_OK_AND_ASSIGN(const Exposition exposition, Exposition::Parse(metrics.Expose()));
  for (const char* phase : {"dense", "build", "sparse", "rebuild"}) {
    EXPECT_EQ(exposition.Count("sparsed_step_seconds", "phase", phase), 0);
    EXPECT_EQ(exposition.Value("sparsed_denoising_steps_total", "phase", phase), 0);
  }
  for (const char* reason : {"short_canvas", "high_density"}) {
    EXPECT_EQ(exposition.Value("sparsed_attention_guard_total", "reason", reason), 0);
  }
}

TEST(MetricsTest, UnknownLabelValuesShareOneSeries) {
  Metrics metrics;
  for (int i = 0; i < 100; ++i) {
    metrics.attention_density.Observe(0.5, "no-such-preset-" + std::to_string(i));
  }
  ASSERT_OK_AND_ASSIGN(const Exposition exposition, Exposition::Parse(metrics.Expose()));
  EXPECT_EQ(exposition.Count("sparsed_attention_density", "preset", "other"), 100);
  EXPECT_THAT(metrics.Expose(), Not(HasSubstr("no-such-preset")));
}

TEST(MetricsTest, HistogramsPutValuesIntoTheRightBucket) {
  Metrics metrics;
  metrics.request_seconds.Observe(0.0015);
  metrics.request_seconds.Observe(700);
  ASSERT_OK_AND_ASSIGN(const Exposition exposition, Exposition::Parse(metrics.Expose()));
  EXPECT_EQ(exposition.Value("sparsed_request_seconds_bucket", "le", "0.001"), 0);
  EXPECT_EQ(exposition.Value("sparsed_request_seconds_bucket", "le", "0.002"), 1);
  EXPECT_EQ(exposition.Value("sparsed_request_seconds_bucket", "le", "600"), 1);
  EXPECT_EQ(exposition.Value("sparsed_request_seconds_bucket", "le", "+Inf"), 2);
  EXPECT_DOUBLE_EQ(exposition.Sum("sparsed_request_seconds"), 700.0015);
}

TEST(MetricsTest, RequestsAreCountedByCode) {
  Metrics metrics;
  metrics.CountRequest(absl::StatusCode::kOk);
  metrics.CountRequest(absl::StatusCode::kResourceExhausted);
  metrics.CountRequest(absl::StatusCode::kResourceExhausted);
  ASSERT_OK_AND_ASSIGN(const Exposition exposition, Exposition::Parse(metrics.Expose()));
  EXPECT_EQ(exposition.Value("sparsed_requests_total", "code", "OK"), 1);
  EXPECT_EQ(exposition.Value("sparsed_requests_total", "code", "RESOURCE_EXHAUSTED"), 2);
  EXPECT_EQ(exposition.Value("sparsed_requests_total", "code", "INTERNAL"), 0);
}

TEST(MetricsTest, ManyThreadsLoseNoCount) {
  Metrics metrics;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&metrics] {
      for (int j = 0; j < 1000; ++j) {
        metrics.step_seconds.Observe(0.01, "sparse");
        metrics.CountRequest(absl::StatusCode::kOk);
      }
    });
  }
  threads.emplace_back([&metrics] {
    for (int j = 0; j < 20; ++j) EXPECT_THAT(Exposition::Parse(metrics.Expose()), IsOk());
  });
  for (std::thread& thread : threads) thread.join();
  ASSERT_OK_AND_ASSIGN(const Exposition exposition, Exposition::Parse(metrics.Expose()));
  EXPECT_EQ(exposition.Count("sparsed_step_seconds", "phase", "sparse"), 4000);
  EXPECT_EQ(exposition.Value("sparsed_requests_total", "code", "OK"), 4000);
}

}  // namespace
}  // namespace sparsed
