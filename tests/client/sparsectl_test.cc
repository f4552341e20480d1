// SPDX-License-Identifier: Apache-2.0
// The sparsectl binary against a scripted server over real sockets.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <netinet/in.h>
#include <sstream>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include <absl/strings/str_split.h>
#include <gmock/gmock.h>
#include <google/rpc/error_details.pb.h>
#include <google/rpc/status.pb.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/client/fake_generation_service.h"
#include "tests/client/rich_status.h"
#include "tests/support/subprocess.h"

namespace sparsed::testing {
namespace {

using ::nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kEscape[] = "\033";

class SparsectlTest : public ::testing::Test {
 protected:
  Subprocess::Options Environment(const std::string& input = "") {
    return {.environment = {"SPARSED_SERVER=" + server_.address(), "TERM=xterm"}, .input = input};
  }
  std::vector<std::string> Command(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), SPARSED_BINARY_DIR "/bin/sparsectl");
    return arguments;
  }
  Finished Run(const std::vector<std::string>& arguments, const std::string& input = "") {
    return Subprocess(Command(arguments), Environment(input)).Wait();
  }
  Finished RunOnTerminal(const std::vector<std::string>& arguments) {
    Subprocess::Options options = Environment();
    options.terminal = Subprocess::Terminal{};
    return Subprocess(Command(arguments), options).Wait();
  }

  FakeServer server_;
};

// A port of 127.0.0.1 that is taken, so that no other test can get it, but that nobody listens on.
class UnansweredPort {
 public:
  UnansweredPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in any = {};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&any), sizeof any), 0);
    socklen_t size = sizeof any;
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&any), &size), 0);
    port_ = ntohs(any.sin_port);
  }
  ~UnansweredPort() { close(fd_); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  const int fd_;
  int port_ = 0;
};

TEST_F(SparsectlTest, PipedOutputIsTheTextAlone) {
  server_.SetScript({.events = TwoStepEvents()});
  const Finished result = Run({"generate", "hello", "--gen-length", "4"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "Hi 東\n");
  EXPECT_EQ(result.error, "");
  EXPECT_EQ(server_.last_request().prompt(), "hello");
  EXPECT_EQ(server_.last_request().decoding().gen_length(), 4u);
}

TEST_F(SparsectlTest, NoStreamPrintsTheSame) {
  server_.SetScript({.events = TwoStepEvents()});
  EXPECT_EQ(Run({"generate", "hello", "--no-stream"}).out, "Hi 東\n");
}

TEST_F(SparsectlTest, VerboseTellsProgressOnStandardErrorOnly) {
  server_.SetScript({.events = TwoStepEvents()});
  const Finished result = Run({"generate", "hello", "--verbose"});
  EXPECT_EQ(result.out, "Hi 東\n");
  EXPECT_THAT(result.error, AllOf(HasSubstr("step 1/2 · dense"), HasSubstr("step 2/2 · sparse"),
                                  HasSubstr("4 tokens"), HasSubstr("layer 0  density 0.250"),
                                  Not(HasSubstr(kEscape))));
}

TEST_F(SparsectlTest, PromptComesFromStandardInputOrAFile) {
  server_.SetScript({.events = TwoStepEvents()});
  Run({"generate"}, "from a pipe\n");
  EXPECT_EQ(server_.last_request().prompt(), "from a pipe");
  const auto path = std::filesystem::path(::testing::TempDir()) / "sparsectl_prompt.txt";
  std::ofstream(path) << "from a file\nof two lines\n";
  Run({"generate", "--file", path.string()});
  EXPECT_EQ(server_.last_request().prompt(), "from a file\nof two lines");
}

TEST_F(SparsectlTest, UnreadableFileIsAUsageError) {
  const Finished result = Run({"generate", "--file", "/nonexistent/prompt"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.error, HasSubstr("/nonexistent/prompt"));
}

TEST_F(SparsectlTest, JsonStreamIsOneEventALine) {
  server_.SetScript({.events = TwoStepEvents()});
  const Finished result = Run({"generate", "hello", "--json"});
  const std::vector<std::string> lines = absl::StrSplit(result.out, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_TRUE(json::parse(lines[0]).contains("started"));
  EXPECT_EQ(json::parse(lines[1])["progress"]["step"], 1);
  EXPECT_EQ(json::parse(lines[3])["finished"]["text"], "Hi 東");
  EXPECT_EQ(result.error, "");
}

TEST_F(SparsectlTest, JsonWithoutStreamIsOneObject) {
  server_.SetScript({.events = TwoStepEvents()});
  EXPECT_EQ(json::parse(Run({"generate", "hello", "--json", "--no-stream"}).out)["text"], "Hi 東");
}

TEST_F(SparsectlTest, SaveWritesTheResultBesideShowingIt) {
  server_.SetScript({.events = TwoStepEvents()});
  const auto path = std::filesystem::path(::testing::TempDir()) / "sparsectl_result.json";
  EXPECT_EQ(Run({"generate", "hello", "--save", path.string()}).out, "Hi 東\n");
  EXPECT_EQ(json::parse(std::ifstream(path))["usage"]["steps"], 2);
  EXPECT_EQ(Run({"generate", "hello", "--save", "/nonexistent/result"}).exit_code, 2);
}

TEST_F(SparsectlTest, ChatSendsSystemAndUserMessages) {
  server_.SetScript({.events = TwoStepEvents()});
  EXPECT_EQ(Run({"chat", "How are you?", "--system", "Be kind."}).out, "Hi 東\n");
  const v1::Chat chat = server_.last_request().chat();
  ASSERT_EQ(chat.messages_size(), 2);
  EXPECT_EQ(chat.messages(0).role(), "system");
  EXPECT_EQ(chat.messages(1).role(), "user");
  EXPECT_EQ(chat.messages(1).content(), "How are you?");
}

TEST_F(SparsectlTest, TerminalShowsTheCanvasResolving) {
  server_.SetScript({.events = TwoStepEvents()});
  const Finished result = RunOnTerminal({"generate", "hello"});
  EXPECT_EQ(result.exit_code, 0);
  // Open positions and the halves of a character, then the whole.
  EXPECT_THAT(result.out, HasSubstr("░"));
  EXPECT_THAT(result.out, HasSubstr("▒"));
  EXPECT_THAT(result.out, HasSubstr("step 2/2 · sparse"));
  const std::string shown_last = result.out.substr(result.out.rfind("\033[J"));
  EXPECT_EQ(shown_last, "\033[JHi 東\r\n\033[?25h");
  EXPECT_THAT(result.error,
              AllOf(HasSubstr("4 tokens"), Not(HasSubstr("layer 0")), Not(HasSubstr(kEscape))));
}

TEST_F(SparsectlTest, NoColorKeepsTheCanvasWithoutColours) {
  server_.SetScript({.events = TwoStepEvents()});
  const Finished result = RunOnTerminal({"generate", "hello", "--no-color"});
  EXPECT_THAT(result.out, HasSubstr("\033[J"));
  for (const char* color : {"\033[1;32m", "\033[2m", "\033[0m"}) {
    EXPECT_THAT(result.out, Not(HasSubstr(color)));
  }
}

TEST_F(SparsectlTest, ConversationRemembersItsTurns) {
  server_.SetScript({.events = TwoStepEvents()});
  Subprocess::Options options = Environment();
  options.terminal = Subprocess::Terminal{};
  Subprocess process(Command({"chat"}), options);
  process.Type("first\nsecond\n/quit\n");
  EXPECT_EQ(process.Wait().exit_code, 0);
  const v1::Chat chat = server_.last_request().chat();
  ASSERT_EQ(chat.messages_size(), 3);
  EXPECT_EQ(chat.messages(0).content(), "first");
  EXPECT_EQ(chat.messages(1).role(), "assistant");
  EXPECT_EQ(chat.messages(1).content(), "Hi 東");
  EXPECT_EQ(chat.messages(2).content(), "second");
}

TEST_F(SparsectlTest, NoServerIsSaidWithTheCommandThatStartsOne) {
  const UnansweredPort port;
  const std::string address = port.address();
  const Finished result = Run({"generate", "hello", "--server", address});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.error, StartsWith("sparsectl: no server answers at " + address +
                                       "; start one with: sparsed --model models/"));
}

TEST_F(SparsectlTest, FieldViolationsAreShown) {
  google::rpc::BadRequest bad_request;
  auto* violation = bad_request.add_field_violations();
  violation->set_field("decoding.steps");
  violation->set_description("must be 1..4, is 9");
  server_.SetScript(
      {.status = WithDetail(grpc::StatusCode::INVALID_ARGUMENT, "invalid", bad_request)});
  for (const char* mode : {"--stream", "--no-stream"}) {
    const Finished result = Run({"generate", "hello", mode});
    EXPECT_EQ(result.exit_code, 4);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.error,
              "sparsectl: the server refused the request:\n  decoding.steps: must be 1..4, is 9\n");
  }
  const json line = json::parse(Run({"generate", "hello", "--json"}).out);
  EXPECT_EQ(line["error"]["code"], "INVALID_ARGUMENT");
}

TEST_F(SparsectlTest, BusyServerTellsWhenToRetry) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(3);
  server_.SetScript({.status = WithDetail(grpc::StatusCode::RESOURCE_EXHAUSTED, "full", retry)});
  const Finished result = Run({"generate", "hello"});
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.error, HasSubstr("try again in 3 s"));
}

TEST_F(SparsectlTest, StreamWithoutResultIsAFailure) {
  std::vector<v1::GenerateEvent> events = TwoStepEvents();
  events.pop_back();
  server_.SetScript({.events = events});
  const Finished result = Run({"generate", "hello"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.error, HasSubstr("without a result"));
}

TEST_F(SparsectlTest, TheLastWordOfAServerThatShutsDownIsShown) {
  std::vector<v1::GenerateEvent> events = TwoStepEvents();
  events.pop_back();
  server_.SetScript({.events = events, .hang = true});
  Subprocess process(Command({"generate", "hello"}), Environment());
  server_.WaitUntilHanging();
  // Stopped, sparsectl finds the status and the end of the connection at once.
  process.Signal(SIGSTOP);
  google::rpc::Status details;
  details.set_code(grpc::StatusCode::UNAVAILABLE);
  server_.EndHanging(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server is shutting down",
                                  details.SerializeAsString()));
  process.Signal(SIGCONT);
  const Finished result = process.Wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.error, "sparsectl: the server is not available: the server is shutting down\n");
}

TEST_F(SparsectlTest, AConnectionLostDuringAStreamIsSaid) {
  std::vector<v1::GenerateEvent> events = TwoStepEvents();
  events.pop_back();
  // As gRPC ends a call whose connection broke: without details.
  server_.SetScript(
      {.events = events, .status = grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed")});
  const Finished result = Run({"generate", "hello"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.error, HasSubstr("the connection to the server was lost"));
}

TEST_F(SparsectlTest, TextThatIsNotUtf8IsRefusedBeforeItIsSent) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "sparsectl_bad_prompt.txt";
  std::ofstream(path) << "ab\xFF";
  const std::string bad = "abc\xFF";
  for (const char* command : {"generate", "chat", "tokenize"}) {
    const Finished piped = Run({command}, bad + "\n");
    EXPECT_EQ(piped.exit_code, 2);
    EXPECT_EQ(piped.error, "sparsectl: standard input is not UTF-8: byte 0xff at offset 3\n");
    EXPECT_EQ(Run({command, "--file", path.string()}).error,
              "sparsectl: " + path.string() + " is not UTF-8: byte 0xff at offset 2\n");
  }
  EXPECT_EQ(Run({"generate", bad}).error,
            "sparsectl: the prompt is not UTF-8: byte 0xff at offset 3\n");
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"chat", "hello", "--system", bad},
                                             {"generate", "hello", "--request-id", bad},
                                             {"generate", "hello", "--preset", bad},
                                             {"health", "--service", bad},
                                             {"cancel", bad}}) {
    const Finished result = Run(command);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.error,
                AllOf(StartsWith("sparsectl: "), HasSubstr("not UTF-8: byte 0xff at offset 3")));
  }
}

TEST_F(SparsectlTest, ALineOfAConversationThatIsNotUtf8IsNoTurn) {
  server_.SetScript({.events = TwoStepEvents()});
  Subprocess::Options options = Environment();
  options.terminal = Subprocess::Terminal{};
  Subprocess process(Command({"chat"}), options);
  process.Type("\xFF\nfirst\n/quit\n");
  const Finished result = process.Wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.error, HasSubstr("the message is not UTF-8: byte 0xff at offset 0"));
  EXPECT_EQ(server_.last_request().chat().messages_size(), 1);
}

TEST_F(SparsectlTest, TimeoutEndsAHangingRequest) {
  server_.SetScript({.hang = true});
  const Finished result = Run({"generate", "hello", "--timeout", "0.5"});
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.error, HasSubstr("--timeout"));
}

TEST_F(SparsectlTest, InterruptCancelsOnTheServer) {
  std::vector<v1::GenerateEvent> events = TwoStepEvents();
  events.pop_back();
  server_.SetScript({.events = events, .hang = true});
  Subprocess process(Command({"generate", "hello"}), Environment());
  server_.WaitUntilHanging();
  process.Signal(SIGINT);
  server_.WaitUntilCancelled();
  const Finished result = process.Wait();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.error, HasSubstr("interrupted"));
}

TEST_F(SparsectlTest, InterruptOnATerminalGivesTheCursorBack) {
  server_.SetScript({.hang = true});
  Subprocess::Options options = Environment();
  options.terminal = Subprocess::Terminal{};
  Subprocess process(Command({"generate", "hello"}), options);
  server_.WaitUntilHanging();
  process.Signal(SIGINT);
  const Finished result = process.Wait();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_LT(result.out.rfind("\033[?25l"), result.out.rfind("\033[?25h"));
}

TEST_F(SparsectlTest, HealthIsAnExitCode) {
  EXPECT_EQ(Run({"health"}).exit_code, 0);
  EXPECT_EQ(Run({"health"}).out, "serving\n");
  server_.SetServing(false);
  const Finished result = Run({"health"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "not serving\n");
}

TEST_F(SparsectlTest, AServiceThatTheServerDoesNotKnowIsNamed) {
  const Finished result = Run({"health", "--service", "nope"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.error, "sparsectl: the server knows no service \"nope\" (--service)\n");
  EXPECT_EQ(json::parse(Run({"health", "--service", "nope", "--json"}).out)["error"]["code"],
            "NOT_FOUND");
}

TEST_F(SparsectlTest, ModelListsPresetsAndLoadTellsDraining) {
  EXPECT_THAT(
      Run({"model"}).out,
      AllOf(HasSubstr("fake"), HasSubstr("17.3 million"),
            HasSubstr("      ratio 0.3 · skip 0 · select top_ratio · sta_window 11x0x0\n")));
  EXPECT_EQ(json::parse(Run({"model", "--json"}).out)["presets"].at(0)["name"], "sparsed");
  EXPECT_THAT(Run({"load"}).out, AllOf(HasSubstr("2 of 8"), HasSubstr("draining")));
}

TEST_F(SparsectlTest, TokenizeGoesBothWays) {
  EXPECT_EQ(Run({"tokenize", "a\n"}).out, "    97  \"a\"\n    10  \"\\n\"\n     1  (special)\n");
  EXPECT_EQ(Run({"tokenize", "--ids", "72,105"}).out, "Hi\n");
}

TEST_F(SparsectlTest, CancelSaysTheTruth) {
  EXPECT_EQ(Run({"cancel", "running"}).exit_code, 0);
  const Finished result = Run({"cancel", "over"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("no request over"));
}

}  // namespace
}  // namespace sparsed::testing
