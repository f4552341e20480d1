// SPDX-License-Identifier: Apache-2.0
// A server that cannot start says why in one line and ends; it never crashes.
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/e2e/live_server.h"
#include "tests/support/eventually.h"
#include "tests/support/subprocess.h"

namespace sparsed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class StartFailureTest : public ::testing::Test {
 protected:
  void SetUp() override {
    model_dir_ =
        std::filesystem::path(::testing::TempDir()) / absl::StrCat("sparsed_e2e_model_", getpid());
    std::filesystem::copy(DemoModelDir(), model_dir_);
    for (const auto& file : std::filesystem::directory_iterator(model_dir_)) {
      std::filesystem::permissions(file, std::filesystem::perms::owner_write,
                                   std::filesystem::perm_options::add);
    }
  }
  void TearDown() override { std::filesystem::remove_all(model_dir_); }

  static Finished Start(const std::vector<std::string>& flags) {
    std::vector<std::string> command = {SPARSED_BINARY_DIR "/bin/sparsed", "--http-listen",
                                        "127.0.0.1:0"};
    command.insert(command.end(), flags.begin(), flags.end());
    Subprocess process(command, {.environment = InheritedEnvironment()});
    EXPECT_TRUE(process.EndsWithin(kPatience));
    return process.Wait();
  }

  // The exit code is 1 and the log has one error, its last line.
  std::string ErrorOf(const std::string& model_dir) {
    const Finished finished = Start({"--model", model_dir, "--listen", "127.0.0.1:0"});
    EXPECT_EQ(finished.exit_code, 1) << finished.error;
    std::vector<std::string> lines = absl::StrSplit(finished.error, '\n', absl::SkipEmpty());
    EXPECT_FALSE(lines.empty());
    if (lines.empty()) return "";
    size_t errors = 0;
    for (const std::string& line : lines) errors += absl::StrContains(line, " error ") ? 1 : 0;
    EXPECT_EQ(errors, 1u) << finished.error;
    return lines.back();
  }

  std::string Path(const std::string& file) const { return model_dir_ / file; }

  std::filesystem::path model_dir_;
};

TEST_F(StartFailureTest, AMissingFolderIsNamed) {
  EXPECT_THAT(ErrorOf("/no/such/model"), HasSubstr("/no/such/model"));
}

TEST_F(StartFailureTest, ABrokenConfigIsNamed) {
  std::ofstream(Path("config.json"), std::ios::trunc) << "{\"d_model\": ";
  EXPECT_THAT(ErrorOf(model_dir_), HasSubstr(Path("config.json")));
}

TEST_F(StartFailureTest, ATruncatedShardIsNamedWithBothSizes) {
  const std::string shard = Path("model-00002-of-00003.safetensors");
  const auto size = std::filesystem::file_size(shard);
  std::filesystem::resize_file(shard, size / 2);
  EXPECT_THAT(ErrorOf(model_dir_), AllOf(HasSubstr(shard), HasSubstr(absl::StrCat(size)),
                                         HasSubstr(absl::StrCat(size / 2))));
}

TEST_F(StartFailureTest, AMissingShardIsNamed) {
  std::filesystem::remove(Path("model-00003-of-00003.safetensors"));
  EXPECT_THAT(ErrorOf(model_dir_), HasSubstr("model-00003-of-00003.safetensors"));
}

TEST_F(StartFailureTest, AMissingTokenizerIsNamed) {
  std::filesystem::remove(Path("tokenizer.json"));
  EXPECT_THAT(ErrorOf(model_dir_), HasSubstr("tokenizer.json"));
}

TEST_F(StartFailureTest, ATakenPortIsNamed) {
  const LiveServer other;
  const Finished finished = Start({"--model", DemoModelDir(), "--listen", other.address()});
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.error, HasSubstr(other.address()));
}

TEST_F(StartFailureTest, BadFlagsExitWithTwo) {
  const Finished unknown = Start({"--model", DemoModelDir(), "--no-such-flag"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.error, HasSubstr("--no-such-flag"));
  const Finished bad = Start({"--model", DemoModelDir(), "--max-rows", "0"});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.error, AllOf(HasSubstr("--max-rows"), HasSubstr("1..4096")));
}

}  // namespace
}  // namespace sparsed::testing
