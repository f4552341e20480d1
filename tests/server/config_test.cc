// SPDX-License-Identifier: Apache-2.0
#include "server/config.h"

#include <cstdlib>
#include <fstream>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sparsed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

ParsedConfig Parse(std::vector<const char*> flags) {
  flags.insert(flags.begin(), "sparsed");
  return ParseConfig(static_cast<int>(flags.size()), flags.data());
}

ServerConfig Config(std::vector<const char*> flags) {
  const ParsedConfig parsed = Parse(std::move(flags));
  if (const auto* exit = std::get_if<ConfigExit>(&parsed)) {
    ADD_FAILURE() << exit->message;
    return {};
  }
  return std::get<ServerConfig>(parsed);
}

ConfigExit Exit(std::vector<const char*> flags) {
  const ParsedConfig parsed = Parse(std::move(flags));
  if (std::holds_alternative<ServerConfig>(parsed)) {
    ADD_FAILURE() << "accepted";
    return {};
  }
  return std::get<ConfigExit>(parsed);
}

std::string WriteFile(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/sparsed_config_test.toml";
  std::ofstream(path) << text;
  return path;
}

// Sets a variable for one test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }

 private:
  const char* const name_;
};

TEST(ConfigTest, OnlyTheModelIsNeeded) {
  const ServerConfig config = Config({"--model", "m"});
  EXPECT_EQ(config.model_dir, "m");
  EXPECT_EQ(config.listen, "127.0.0.1:50051");
  EXPECT_EQ(config.default_preset, "dense");
  EXPECT_TRUE(config.attention_guard);
  EXPECT_EQ(config.log_format, LogFormat::kText);
}

TEST(ConfigTest, EveryFlagIsRead) {
  const ServerConfig config =
      Config({"--model",           "m",       "--listen",           "0.0.0.0:1",
              "--http-listen",     "[::1]:2", "--max-rows",         "3",
              "--max-queue",       "4",       "--max-batch-tokens", "5",
              "--mask-budget-mib", "6",       "--threads",          "7",
              "--drain-seconds",   "0",       "--stall-seconds",    "9",
              "--default-preset",  "sparsed", "--max-message-mib",  "10",
              "--log-level",       "warning", "--log-format",       "json",
              "--attention-guard", "false",   "--port-file",        "p"});
  EXPECT_EQ(config.listen, "0.0.0.0:1");
  EXPECT_EQ(config.http_listen, "[::1]:2");
  EXPECT_EQ(config.max_rows, 3);
  EXPECT_EQ(config.max_queue, 4);
  EXPECT_EQ(config.max_batch_tokens, 5);
  EXPECT_EQ(config.mask_budget_mib, 6);
  EXPECT_EQ(config.threads, 7);
  EXPECT_EQ(config.drain_seconds, 0);
  EXPECT_EQ(config.stall_seconds, 9);
  EXPECT_EQ(config.default_preset, "sparsed");
  EXPECT_FALSE(config.attention_guard);
  EXPECT_EQ(config.max_message_mib, 10);
  EXPECT_EQ(config.log_level, "warning");
  EXPECT_EQ(config.log_format, LogFormat::kJson);
  EXPECT_EQ(config.port_file, "p");
}

TEST(ConfigTest, AFlagWinsOverTheFileAndTheFileOverTheEnvironment) {
  const Variable model("SPARSED_MODEL", "from-environment");
  const Variable rows("SPARSED_MAX_ROWS", "11");
  const Variable queue("SPARSED_MAX_QUEUE", "12");
  const std::string file = WriteFile("max-queue = 22\nthreads = 23\nlog-level = \"error\"\n");
  const ServerConfig config = Config({"--config", file.c_str(), "--threads", "33"});
  EXPECT_EQ(config.model_dir, "from-environment");
  EXPECT_EQ(config.max_rows, 11);
  EXPECT_EQ(config.max_queue, 22);
  EXPECT_EQ(config.threads, 33);
  EXPECT_EQ(config.log_level, "error");
}

TEST(ConfigTest, TheGuardIsABooleanOfFileAndEnvironmentToo) {
  const std::string file = WriteFile("attention-guard = false\n");
  EXPECT_FALSE(Config({"--model", "m", "--config", file.c_str()}).attention_guard);
  const Variable variable("SPARSED_ATTENTION_GUARD", "false");
  EXPECT_FALSE(Config({"--model", "m"}).attention_guard);
  EXPECT_TRUE(Config({"--model", "m", "--attention-guard", "true"}).attention_guard);
}

TEST(ConfigTest, BadValuesNameFlagValueAndLimitInOneLine) {
  const std::vector<std::vector<const char*>> cases = {
      {"--max-rows", "0", "1..4096"},
      {"--max-rows", "many", "1..4096"},
      {"--max-rows", "3x", "1..4096"},
      {"--max-queue", "-1", "1..1048576"},
      {"--max-batch-tokens", "0", "1.."},
      {"--mask-budget-mib", "0", "1.."},
      {"--threads", "9999999999999999999", "0..4096"},
      {"--drain-seconds", "-5", "0..86400"},
      {"--stall-seconds", "0", "1..86400"},
      {"--max-message-mib", "1025", "1..1024"},
      {"--listen", "localhost", "HOST:PORT"},
      {"--listen", "localhost:70000", "0..65535"},
      {"--http-listen", ":80", "HOST:PORT"},
      {"--default-preset", "flash", "dense, sparsed"},
      {"--attention-guard", "1", "true, false"},
      {"--log-level", "loud", "debug, info, warning, error"},
      {"--log-format", "xml", "text, json"},
  };
  for (const auto& bad : cases) {
    const ConfigExit exit = Exit({"--model", "m", bad[0], bad[1]});
    EXPECT_EQ(exit.code, 2);
    EXPECT_THAT(exit.message, AllOf(HasSubstr(bad[0]), HasSubstr(bad[1]), HasSubstr(bad[2]),
                                    Not(HasSubstr("\n"))));
  }
}

TEST(ConfigTest, ABadValueNamesTheSourceThatSetIt) {
  const Variable rows("SPARSED_MAX_ROWS", "none");
  const std::string file = WriteFile("max-rows = -2\n");
  const ConfigExit variable = Exit({"--model", "m"});
  EXPECT_EQ(variable.code, 2);
  EXPECT_EQ(variable.message,
            "sparsed: --max-rows: \"none\" is not a whole number in 1..4096 "
            "(from SPARSED_MAX_ROWS) (see --help)");
  EXPECT_EQ(Exit({"--model", "m", "--config", file.c_str()}).message,
            "sparsed: --max-rows: \"-2\" is not a whole number in 1..4096 (from " + file +
                ") (see --help)");
  for (const std::vector<const char*>& flag :
       {std::vector<const char*>{"--max-rows", "0"}, {"--max-rows=0"}}) {
    std::vector<const char*> flags = {"--model", "m"};
    flags.insert(flags.end(), flag.begin(), flag.end());
    EXPECT_EQ(Exit(flags).message,
              "sparsed: --max-rows: \"0\" is not a whole number in 1..4096 (see --help)");
  }
}

TEST(ConfigTest, AFileOfUnknownKeysIsNamedWithTheKey) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"max-rowz = 2\n", "unknown key \"max-rowz\""},
      {"threads = 2\nconfig = \"other.toml\"\n", "unknown key \"config\""},
      {"[server]\nmax-rows = 2\n", "unknown section [server]"},
  };
  for (const auto& [text, wrong] : cases) {
    const std::string file = WriteFile(text);
    const ConfigExit exit = Exit({"--model", "m", "--config", file.c_str()});
    EXPECT_EQ(exit.code, 2);
    EXPECT_EQ(exit.message, "sparsed: " + file + ": " + wrong + " (see --help)");
  }
}

TEST(ConfigTest, UnknownFlagsAndMissingFilesAreErrors) {
  EXPECT_THAT(Exit({"--model", "m", "--what"}).message, HasSubstr("--what"));
  EXPECT_THAT(Exit({"--model", "m", "--config", "/nowhere.toml"}).message,
              HasSubstr("/nowhere.toml"));
}

TEST(ConfigTest, AMissingModelIsNamed) {
  const ConfigExit exit = Exit({});
  EXPECT_EQ(exit.code, 2);
  EXPECT_THAT(exit.message, HasSubstr("--model"));
}

TEST(ConfigTest, HelpAndVersionSucceed) {
  const ConfigExit help = Exit({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.message,
              AllOf(HasSubstr("--max-batch-tokens N [16384]"), HasSubstr("SPARSED_MAX_ROWS")));
  const ConfigExit version = Exit({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_THAT(version.message, HasSubstr("sparsed 0."));
}

}  // namespace
}  // namespace sparsed
