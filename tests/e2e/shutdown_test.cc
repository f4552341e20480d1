// SPDX-License-Identifier: Apache-2.0
// SIGTERM lets what runs finish; a second one does not.
#include <chrono>
#include <csignal>

#include <gtest/gtest.h>

#include "tests/e2e/live_server.h"
#include "tests/e2e/recording.h"
#include "tests/support/eventually.h"

namespace sparsed::testing {
namespace {

class ShutdownTest : public ::testing::Test {
 protected:
  bool BecomesUnhealthy() {
    return Eventually([this] { return !server_.Healthy(); });
  }

  LiveServer server_;
};

TEST_F(ShutdownTest, SigtermFinishesWhatRunsAndRefusesWhatIsNew) {
  v1::GenerateRequest request = LongStory("running");
  request.mutable_decoding()->set_gen_length(64);
  request.mutable_decoding()->set_steps(64);
  OpenStream running(server_.stub(), request);
  ASSERT_TRUE(running.ReadUntil(v1::PHASE_SPARSE));
  EXPECT_TRUE(server_.Healthy());

  server_.Signal(SIGTERM);
  EXPECT_TRUE(BecomesUnhealthy());
  ASSERT_TRUE(Eventually([this] { return server_.Load().draining(); }));
  const grpc::Status refused = Record(server_.stub(), Story()).status;
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE) << refused.error_message();
  EXPECT_NE(refused.error_message().find("shutting down"), std::string::npos);

  EXPECT_TRUE(running.Finish().ok());
  EXPECT_EQ(server_.ExitCode(), 0);
}

TEST_F(ShutdownTest, ASecondSigtermDropsWhatRuns) {
  OpenStream running(server_.stub(), LongStory("running"));
  ASSERT_TRUE(running.ReadUntil(v1::PHASE_SPARSE));
  server_.Signal(SIGTERM);
  EXPECT_TRUE(BecomesUnhealthy());
  server_.Signal(SIGTERM);
  EXPECT_EQ(running.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(server_.ExitCode(), 0);
}

TEST_F(ShutdownTest, AnIdleServerStopsOnSigint) {
  server_.Signal(SIGINT);
  EXPECT_EQ(server_.ExitCode(), 0);
}

}  // namespace
}  // namespace sparsed::testing
