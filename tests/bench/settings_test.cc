// SPDX-License-Identifier: Apache-2.0
#include "bench/settings.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/matchers.h"

namespace sparsed {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

std::string WriteFile(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/settings.jsonl";
  std::ofstream(path) << text;
  return path;
}

TEST(SettingsTest, OverridesReplaceThePresetsFields) {
  const absl::StatusOr<Setting> setting = ParseSetting(
      R"({"name": "x/0.03", "preset": "sparsed", "select": "mass", "mass": 0.4, "prior":
          "sink_window", "sink_blocks": 2, "refresh_every": 4, "guard": false,
          "grid": {"t": 1, "h": 8, "w": 16}})");
  ASSERT_TRUE(setting.ok()) << setting.status();
  EXPECT_EQ(setting->name, "x/0.03");
  EXPECT_EQ(setting->plan.preset, "sparsed");
  EXPECT_EQ(setting->plan.score, ScoreRule::kPooledMass);
  EXPECT_EQ(setting->plan.select, SelectRule::kMass);
  EXPECT_EQ(setting->plan.mass, 0.4);
  EXPECT_EQ(setting->plan.prior, PriorRule::kSinkWindow);
  EXPECT_EQ(setting->plan.sink_blocks, 2);
  EXPECT_EQ(setting->plan.refresh_every, 4);
  EXPECT_FALSE(setting->plan.guard);
  EXPECT_EQ(setting->plan.grid, (Extent3{1, 8, 16}));
  EXPECT_EQ(setting->plan.skip, FindAttentionPreset("sparsed")->skip);
}

TEST(SettingsTest, WrongFieldsAreNamed) {
  const auto error = [](const std::string& line) {
    return std::string(ParseSetting(line).status().message());
  };
  EXPECT_THAT(error(R"({"name": "x", "preset": "dense", "rho": 1})"), HasSubstr("rho is 1"));
  EXPECT_THAT(error(R"({"name": "x", "preset": "dense", "ratio": "1"})"), HasSubstr("ratio is"));
  EXPECT_THAT(error(R"({"name": "x", "preset": "dense", "block_tokens": 1e20})"),
              HasSubstr("block_tokens is"));
  EXPECT_THAT(error(R"({"name": "x", "preset": "dense", "block_tokens": 32.5})"),
              HasSubstr("block_tokens is"));
  EXPECT_THAT(error(R"({"name": "x", "preset": "dense", "score": "best"})"),
              HasSubstr("attention.score"));
  EXPECT_THAT(error(R"({"name": "x", "preset": "dense", "grid": 4})"), HasSubstr("grid is 4"));
  EXPECT_THAT(error(R"({"name": "x", "preset": "fast"})"), HasSubstr("attention.preset"));
  EXPECT_THAT(error(R"({"preset": "dense"})"), HasSubstr("name is unset"));
  EXPECT_THAT(error("[]"), HasSubstr("not a JSON object"));
}

TEST(SettingsTest, AFileNamesTheWrongLine) {
  const std::string twice = R"({"name": "a", "preset": "dense"})";
  EXPECT_THAT(LoadSettings(WriteFile(twice + "\n\n" + twice)).status().message(),
              HasSubstr("settings.jsonl:3: name is a"));
  EXPECT_THAT(LoadSettings(WriteFile("\n")).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("holds no setting")));
  EXPECT_THAT(LoadSettings("/nonexistent").status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent")));
}

TEST(SettingsTest, PatternsKeepTheFilesOrder) {
  const std::vector<Setting> all = {{"dense", {}, {}}, {"a/1", {}, {}}, {"a/2", {}, {}}};
  const auto names = [](const std::vector<Setting>& settings) {
    std::vector<std::string> out;
    for (const Setting& setting : settings) out.push_back(setting.name);
    return out;
  };
  EXPECT_THAT(names(*FilterSettings(all, {"a/*", "dense"})), ElementsAre("dense", "a/1", "a/2"));
  EXPECT_THAT(names(*FilterSettings(all, {"a/2"})), ElementsAre("a/2"));
  EXPECT_EQ(FilterSettings(all, {})->size(), 3U);
  EXPECT_THAT(FilterSettings(all, {"dense", "b*"}).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("--setting b*")));
}

TEST(SettingsTest, EveryShippedSettingRunsAtEveryLength) {
  const auto settings = LoadSettings(SPARSED_SOURCE_DIR "/bench/fidelity_settings.jsonl");
  ASSERT_TRUE(settings.ok()) << settings.status();
  for (const Setting& setting : *settings) {
    for (const int32_t length : {1024, 2048, 4096}) {
      EXPECT_THAT(ValidateAttentionPlan(setting.plan, length), IsOk()) << setting.name;
    }
    EXPECT_TRUE(!setting.plan.sparse() || !setting.plan.guard)
        << setting.name << " would measure dense attention where sparse is slow";
  }
}

}  // namespace
}  // namespace sparsed
