// SPDX-License-Identifier: Apache-2.0
#include "server/log.h"

#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace sparsed {
namespace {

TEST(LogTest, TextIsKeyEqualsValue) {
  EXPECT_EQ(FormatLogLine(LogFormat::kText, "request",
                          {{"id", "a-1"}, {"steps", 32}, {"density", 0.25}, {"code", "OK"}}),
            "request id=a-1 steps=32 density=0.25 code=OK");
}

TEST(LogTest, TextIsQuotedWhereItIsNotOneWord) {
  EXPECT_EQ(
      FormatLogLine(LogFormat::kText, "failed", {{"error", "no such \"file\"\n"}, {"peer", ""}}),
      R"(failed error="no such \"file\"\n" peer="")");
}

TEST(LogTest, UnsetOptionalsAreLeftOut) {
  EXPECT_EQ(FormatLogLine(LogFormat::kText, "x",
                          {{"a", std::optional<double>()}, {"b", std::optional<double>(2.5)}}),
            "x b=2.5");
}

TEST(LogTest, JsonClosesTheObjectThatThePatternOpens) {
  const std::string line = FormatLogLine(
      LogFormat::kJson, "request",
      {{"id", "a\"b"}, {"bytes", "\xff"}, {"steps", 3}, {"mass", 0.5}, {"bad", std::nan("")}});
  const nlohmann::json parsed = nlohmann::json::parse("{" + line);
  EXPECT_EQ(parsed.at("event"), "request");
  EXPECT_EQ(parsed.at("id"), "a\"b");
  EXPECT_EQ(parsed.at("bytes"), "\xef\xbf\xbd");
  EXPECT_EQ(parsed.at("steps"), 3);
  EXPECT_EQ(parsed.at("mass"), 0.5);
  EXPECT_TRUE(parsed.at("bad").is_null());
}

}  // namespace
}  // namespace sparsed
