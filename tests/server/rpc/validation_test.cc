// SPDX-License-Identifier: Apache-2.0
// Runs every tests/cases/*.textproto against a live server.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "tests/server/rpc/status_details.h"
#include "tests/server/rpc/test_case.pb.h"
#include "tests/server/rpc/test_server.h"

namespace sparsed::testing {
namespace {

std::filesystem::path CasesDir() { return std::string(SPARSED_SOURCE_DIR) + "/tests/cases"; }

std::vector<std::string> CaseNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(CasesDir())) {
    if (entry.path().extension() == ".textproto") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TestCase ReadCase(const std::string& name) {
  std::ifstream file(CasesDir() / (name + ".textproto"));
  std::stringstream text;
  text << file.rdbuf();
  TestCase test_case;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text.str(), &test_case)) << name;
  return test_case;
}

class ValidationTest : public ::testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() { server_ = new TestServer(); }
  static void TearDownTestSuite() { delete server_; }
  static TestServer* server_;
};
TestServer* ValidationTest::server_ = nullptr;

void ExpectAsStated(const grpc::Status& status, const TestCase& test_case) {
  EXPECT_EQ(absl::StatusCodeToString(static_cast<absl::StatusCode>(status.error_code())),
            test_case.code())
      << status.error_message();
  EXPECT_EQ(BadField(status), test_case.field()) << status.error_message();
  EXPECT_THAT(status.error_message(), ::testing::HasSubstr(test_case.message()));
}

TEST_P(ValidationTest, AnswersAsStated) {
  const TestCase test_case = ReadCase(GetParam());
  {
    grpc::ClientContext context;
    v1::GenerateResponse response;
    ExpectAsStated(server_->stub().Generate(&context, test_case.request(), &response), test_case);
  }
  grpc::ClientContext context;
  const auto reader = server_->stub().GenerateStream(&context, test_case.request());
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
  }
  ExpectAsStated(reader->Finish(), test_case);
  server_->ExpectAllFreed();
}

INSTANTIATE_TEST_SUITE_P(Cases, ValidationTest, ::testing::ValuesIn(CaseNames()),
                         [](const auto& test) { return test.param; });

TEST(ValidationCasesTest, TheFolderIsRead) { EXPECT_GE(CaseNames().size(), 80u); }

}  // namespace
}  // namespace sparsed::testing
