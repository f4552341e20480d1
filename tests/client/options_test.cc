// SPDX-License-Identifier: Apache-2.0
#include "client/options.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/exit_code.h"

namespace sparsed::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::variant<Options, ParseExit> Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "sparsectl");
  return ParseOptions(static_cast<int>(arguments.size()), arguments.data());
}

Options ParseWell(const std::vector<const char*>& arguments) {
  auto parsed = Parse(arguments);
  if (const auto* exit = std::get_if<ParseExit>(&parsed)) {
    ADD_FAILURE() << exit->error;
    return {};
  }
  return std::get<Options>(parsed);
}

GenerateOptions ParseGenerate(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "generate");
  return std::get<GenerateOptions>(ParseWell(arguments).command);
}

std::string ErrorOf(const std::vector<const char*>& arguments) {
  auto parsed = Parse(arguments);
  if (std::holds_alternative<Options>(parsed)) return "(no error)";
  EXPECT_EQ(std::get<ParseExit>(parsed).exit_code, kExitUsage);
  return std::get<ParseExit>(parsed).error;
}

TEST(OptionsTest, UnsetOptionsStayUnsetInTheRequest) {
  const GenerateOptions options = ParseGenerate({"hello"});
  EXPECT_EQ(options.prompt.text, "hello");
  EXPECT_TRUE(options.generation.stream);
  EXPECT_EQ(options.generation.request.ByteSizeLong(), 0u);
}

TEST(OptionsTest, EveryGenerationOptionReachesItsField) {
  const v1::GenerateRequest request = ParseGenerate({"hi",
                                                     "--gen-length",
                                                     "64",
                                                     "--steps",
                                                     "32",
                                                     "--block-length",
                                                     "16",
                                                     "--remasking",
                                                     "random",
                                                     "--temperature",
                                                     "0.5",
                                                     "--seed",
                                                     "18446744073709551615",
                                                     "--cfg-scale",
                                                     "1.5",
                                                     "--no-stop-on-end",
                                                     "--preset",
                                                     "sparsed",
                                                     "--ratio",
                                                     "0.3",
                                                     "--skip",
                                                     "0.2",
                                                     "--block-tokens",
                                                     "32",
                                                     "--every",
                                                     "4",
                                                     "--provisional",
                                                     "--request-id",
                                                     "r1"})
                                          .generation.request;
  EXPECT_EQ(request.request_id(), "r1");
  EXPECT_EQ(request.decoding().gen_length(), 64u);
  EXPECT_EQ(request.decoding().steps(), 32u);
  EXPECT_EQ(request.decoding().block_length(), 16u);
  EXPECT_EQ(request.decoding().remasking(), v1::REMASKING_RANDOM);
  EXPECT_EQ(request.decoding().temperature(), 0.5);
  EXPECT_EQ(request.decoding().seed(), 18446744073709551615u);
  EXPECT_EQ(request.decoding().cfg_scale(), 1.5);
  EXPECT_TRUE(request.decoding().has_stop_on_end());
  EXPECT_FALSE(request.decoding().stop_on_end());
  EXPECT_EQ(request.attention().preset(), "sparsed");
  EXPECT_EQ(request.attention().ratio(), 0.3);
  EXPECT_EQ(request.attention().skip(), 0.2);
  EXPECT_EQ(request.attention().block_tokens(), 32u);
  EXPECT_EQ(request.streaming().every_steps(), 4u);
  EXPECT_TRUE(request.streaming().provisional());
}

TEST(OptionsTest, EveryAttentionOptionReachesItsField) {
  const v1::GenerateRequest request =
      ParseGenerate({"hi",       "--score",          "mean",    "--select",
                     "mass",     "--reorder",        "fractal", "--prior",
                     "sta",      "--mass",           "0.75",    "--sink-blocks",
                     "2",        "--window-blocks",  "3",       "--grid",
                     "21x32x48", "--sta-window",     "11x3x5",  "--sort-blocks",
                     "6",        "--refresh-every",  "7",       "--min-retained-mass",
                     "0.5",      "--relevant-share", "0.25",    "--no-guard"})
          .generation.request;
  const v1::Attention& attention = request.attention();
  EXPECT_EQ(attention.score(), "mean");
  EXPECT_EQ(attention.select(), "mass");
  EXPECT_EQ(attention.reorder(), "fractal");
  EXPECT_EQ(attention.prior(), "sta");
  EXPECT_EQ(attention.mass(), 0.75);
  EXPECT_EQ(attention.sink_blocks(), 2u);
  EXPECT_EQ(attention.window_blocks(), 3u);
  EXPECT_EQ(attention.grid().ShortDebugString(), "t: 21 h: 32 w: 48");
  EXPECT_EQ(attention.sta_window().ShortDebugString(), "t: 11 h: 3 w: 5");
  EXPECT_EQ(attention.sort_blocks(), 6u);
  EXPECT_EQ(attention.refresh_every(), 7u);
  EXPECT_EQ(attention.min_retained_mass(), 0.5);
  EXPECT_EQ(attention.relevant_share(), 0.25);
  EXPECT_TRUE(attention.has_guard());
  EXPECT_FALSE(attention.guard());
  EXPECT_FALSE(attention.has_preset());
}

TEST(OptionsTest, EveryFieldOfAttentionHasAnOption) {
  const std::string help = std::get<ParseExit>(Parse({"generate", "--help"})).output;
  const auto& fields = *v1::Attention::descriptor();
  for (int i = 0; i < fields.field_count(); ++i) {
    std::string option = fields.field(i)->name() == "guard" ? "no-guard" : fields.field(i)->name();
    std::replace(option.begin(), option.end(), '_', '-');
    EXPECT_THAT(help, HasSubstr("--" + option + " "));
  }
  EXPECT_THAT(help, HasSubstr("Attention: when masks are made:"));
}

TEST(OptionsTest, ExtentsAreThreeWholeNumbers) {
  for (const char* extent : {"21x32", "21x32x48x1", "21x32x", "x32x48", "21 x 32 x 48", "-1x8x8",
                             "1.5x8x8", "4294967296x8x8", "21X32X48", ""}) {
    EXPECT_THAT(ErrorOf({"generate", "hi", "--grid", extent}),
                ::testing::AllOf(HasSubstr("--grid"), HasSubstr("TxHxW")))
        << extent;
  }
  EXPECT_THAT(ErrorOf({"generate", "hi", "--sta-window", "3"}), HasSubstr("--sta-window"));
}

TEST(OptionsTest, ZeroIsSentAsZeroForTheServerToJudge) {
  EXPECT_TRUE(ParseGenerate({"hi", "--steps", "0"}).generation.request.decoding().has_steps());
}

TEST(OptionsTest, GlobalOptionsGoBeforeAndAfterTheCommand) {
  for (const auto& arguments : std::vector<std::vector<const char*>>{
           {"--server", "example.org:80", "--json", "--timeout", "2.5", "model"},
           {"model", "--server", "example.org:80", "--json", "--timeout", "2.5"}}) {
    const Options options = ParseWell(arguments);
    EXPECT_EQ(options.global.server, "example.org:80");
    EXPECT_TRUE(options.global.json);
    EXPECT_EQ(options.global.timeout_seconds, 2.5);
    EXPECT_TRUE(std::holds_alternative<ModelOptions>(options.command));
  }
}

TEST(OptionsTest, ServerComesFromTheEnvironmentUnlessGiven) {
  setenv("SPARSED_SERVER", "10.0.0.1:7", 1);
  EXPECT_EQ(ParseWell({"load"}).global.server, "10.0.0.1:7");
  EXPECT_EQ(ParseWell({"load", "--server", "[::1]:8"}).global.server, "[::1]:8");
  unsetenv("SPARSED_SERVER");
  EXPECT_EQ(ParseWell({"load"}).global.server, "127.0.0.1:50051");
}

TEST(OptionsTest, NoStreamTurnsStreamingOff) {
  EXPECT_FALSE(ParseGenerate({"hi", "--no-stream"}).generation.stream);
  EXPECT_TRUE(ParseGenerate({"hi", "--stream"}).generation.stream);
}

TEST(OptionsTest, TokenIdsAreSplitAtCommas) {
  const auto options =
      std::get<TokenizeOptions>(ParseWell({"tokenize", "--ids", "1,22,3"}).command);
  EXPECT_THAT(options.ids, ElementsAre(1, 22, 3));
}

TEST(OptionsTest, ErrorsNameTheOptionAndPointAtTheRightHelp) {
  EXPECT_THAT(ErrorOf({}), HasSubstr("a command is missing"));
  EXPECT_THAT(ErrorOf({"frobnicate"}), HasSubstr("'frobnicate'"));
  EXPECT_THAT(ErrorOf({"generate", "hi", "--steps", "many"}),
              ::testing::AllOf(HasSubstr("--steps"), HasSubstr("sparsectl generate --help")));
  EXPECT_THAT(ErrorOf({"generate", "hi", "--steps", "-1"}), HasSubstr("--steps"));
  EXPECT_THAT(ErrorOf({"generate", "hi", "--steps", "4294967296"}), HasSubstr("--steps"));
  EXPECT_THAT(ErrorOf({"generate", "hi", "--remasking", "best"}), HasSubstr("low_confidence"));
  EXPECT_THAT(ErrorOf({"generate", "hi", "--file", "x"}), HasSubstr("--file"));
  EXPECT_THAT(ErrorOf({"generate", "hi", "there"}), HasSubstr("there"));
  EXPECT_THAT(ErrorOf({"cancel"}), HasSubstr("id"));
  EXPECT_THAT(ErrorOf({"tokenize", "--ids", "1,x"}), HasSubstr("--ids"));
}

TEST(OptionsTest, ServerMustBeHostAndPort) {
  for (const char* server : {"host", "host:", ":50051", "host:0", "host:65536", "host:8x", ""}) {
    EXPECT_THAT(ErrorOf({"load", "--server", server}), HasSubstr("HOST:PORT")) << server;
  }
}

TEST(OptionsTest, TimeoutMustBePositive) {
  for (const char* seconds : {"0", "-1", "nan", "x"}) {
    EXPECT_THAT(ErrorOf({"load", "--timeout", seconds}), HasSubstr("--timeout")) << seconds;
  }
}

TEST(OptionsTest, HelpTellsExitCodesForEveryCommand) {
  for (const auto& arguments : std::vector<std::vector<const char*>>{{"--help"},
                                                                     {"generate", "--help"},
                                                                     {"chat", "--help"},
                                                                     {"model", "--help"},
                                                                     {"load", "--help"},
                                                                     {"health", "--help"},
                                                                     {"tokenize", "-h"},
                                                                     {"cancel", "--help"}}) {
    const ParseExit exit = std::get<ParseExit>(Parse(arguments));
    EXPECT_EQ(exit.exit_code, kExitOk);
    EXPECT_EQ(exit.error, "");
    EXPECT_THAT(exit.output, HasSubstr("130 interrupted"));
    EXPECT_THAT(exit.output, Not(HasSubstr("sparsectl sparsectl")));
  }
}

TEST(OptionsTest, VersionIsPrinted) {
  EXPECT_THAT(std::get<ParseExit>(Parse({"--version"})).output, HasSubstr("sparsectl 0."));
}

}  // namespace
}  // namespace sparsed::client
