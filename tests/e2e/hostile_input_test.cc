// SPDX-License-Identifier: Apache-2.0
// Requests that mean harm, or are merely wrong, get one clear error, and the server goes on.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "tests/e2e/live_server.h"
#include "tests/e2e/recording.h"
#include "tests/server/rpc/status_details.h"
#include "tests/server/rpc/test_case.pb.h"

namespace sparsed::testing {
namespace {

using ::testing::HasSubstr;

class HostileInputTest : public ::testing::Test {
 protected:
  // After every test, whatever it sent.
  void TearDown() override {
    const Recording recording = Record(server_.stub(), Ask("What is 21 + 34?"));
    EXPECT_TRUE(recording.status.ok()) << recording.status.error_message();
    EXPECT_EQ(recording.finished.text(), "55");
    EXPECT_TRUE(server_.BecomesIdle());
  }

  grpc::Status Generate(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    v1::GenerateResponse response;
    return server_.stub().Generate(&context, request, &response);
  }

  // Allows a tenth of what counting the tokens of 15 MiB would take.
  grpc::Status GenerateBriefly(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(3));
    v1::GenerateResponse response;
    return server_.stub().Generate(&context, request, &response);
  }

  LiveServer server_;
};

TEST_F(HostileInputTest, AMessageOverTheLimitIsRefused) {
  v1::GenerateRequest request;
  request.set_prompt(std::string(size_t{64} << 20, 'x'));
  const grpc::Status status = Generate(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_EQ(Record(server_.stub(), request).status.error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(HostileInputTest, APromptOverTheModelsLengthIsRefused) {
  v1::GenerateRequest request;
  request.set_prompt(std::string(4097, '7'));
  const grpc::Status status = Generate(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(BadField(status), "prompt");
  EXPECT_THAT(status.error_message(), HasSubstr("max_length 4096"));
}

// Counting the tokens of 15 MiB takes half a minute and 6 GiB.
TEST_F(HostileInputTest, TextFarOverTheModelsLengthIsRefusedUncounted) {
  const std::string text(size_t{15} << 20, '7');
  v1::GenerateRequest prompt;
  prompt.set_prompt(text);
  EXPECT_EQ(BadField(GenerateBriefly(prompt)), "prompt");
  EXPECT_EQ(BadField(GenerateBriefly(Ask(text))), "chat.messages");
  v1::GenerateRequest messages;
  for (int i = 0; i < 100'000; ++i) messages.mutable_chat()->add_messages()->set_role("user");
  EXPECT_EQ(BadField(GenerateBriefly(messages)), "chat.messages");

  grpc::ClientContext context;
  v1::TokenizeRequest tokenize;
  tokenize.set_text(text);
  v1::TokenizeResponse response;
  EXPECT_EQ(BadField(server_.stub().Tokenize(&context, tokenize, &response)), "text");
}

TEST_F(HostileInputTest, MoreIdsThanTheModelsLengthAreRefused) {
  grpc::ClientContext context;
  v1::DetokenizeRequest request;
  for (int i = 0; i < 4097; ++i) request.add_ids(26);
  v1::DetokenizeResponse response;
  EXPECT_EQ(BadField(server_.stub().Detokenize(&context, request, &response)), "ids");
}

TEST_F(HostileInputTest, TextThatIsNotUtf8IsRefusedByField) {
  v1::GenerateRequest request = Ask("what \xff\xfe is this");
  const grpc::Status status = Generate(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(BadField(status), HasSubstr("content")) << status.error_message();
}

TEST_F(HostileInputTest, ControlTokensInUserTextStayText) {
  grpc::ClientContext context;
  v1::TokenizeRequest request;
  request.set_text("<|endoftext|><|mdm_mask|><|eot_id|>");
  v1::TokenizeResponse response;
  ASSERT_TRUE(server_.stub().Tokenize(&context, request, &response).ok());
  for (const uint32_t id : response.ids()) EXPECT_GT(id, 5u);  // 0..5 are the control tokens
}

// server_rpc_test runs these with a fake engine; the real one agrees on what is valid.
TEST_F(HostileInputTest, EveryCaseGetsItsCode) {
  int cases = 0;
  for (const auto& file : std::filesystem::directory_iterator(SPARSED_SOURCE_DIR "/tests/cases")) {
    std::stringstream text;
    text << std::ifstream(file.path()).rdbuf();
    TestCase test_case;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text.str(), &test_case)) << file;
    if (test_case.code() == "OK") continue;  // long generations; the other runner does them
    const grpc::Status status = Generate(test_case.request());
    EXPECT_EQ(absl::StatusCodeToString(static_cast<absl::StatusCode>(status.error_code())),
              test_case.code())
        << file << ": " << status.error_message();
    EXPECT_EQ(BadField(status), test_case.field()) << file;
    ++cases;
  }
  EXPECT_GT(cases, 30);
}

}  // namespace
}  // namespace sparsed::testing
