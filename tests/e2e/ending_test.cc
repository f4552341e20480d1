// SPDX-License-Identifier: Apache-2.0
// However a request ends, what it held is free again and the end is counted.
#include <chrono>
#include <csignal>
#include <future>

#include <google/rpc/error_details.pb.h>
#include <gtest/gtest.h>

#include "tests/e2e/live_server.h"
#include "tests/e2e/recording.h"
#include "tests/server/rpc/status_details.h"
#include "tests/support/eventually.h"

namespace sparsed::testing {
namespace {

constexpr char kSteps[] = "sparsed_denoising_steps_total";

class EndingTest : public ::testing::Test {
 protected:
  double Count(const std::string& name, const std::string& label, const std::string& value) {
    return server_.Scrape().Value(name, label, value);
  }

  void ExpectServes() {
    const Recording recording = Record(server_.stub(), Ask("What is 21 + 34?"));
    EXPECT_TRUE(recording.status.ok()) << recording.status.error_message();
    EXPECT_EQ(recording.finished.text(), "55");
  }

  LiveServer server_;
};

TEST_F(EndingTest, CancelFreesTheRowWithinAStep) {
  OpenStream stream(server_.stub(), LongStory("unwanted"));
  ASSERT_TRUE(stream.ReadUntil(v1::PHASE_SPARSE));
  EXPECT_EQ(server_.Load().running_rows(), 1u);
  EXPECT_GT(server_.Load().mask_bytes_used(), 0u);
  EXPECT_TRUE(server_.Cancel("unwanted"));
  const double steps = Count(kSteps, "phase", "sparse");
  EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(server_.BecomesIdle());
  EXPECT_LE(Count(kSteps, "phase", "sparse"), steps + 1);  // the one that was under way
  EXPECT_EQ(Count("sparsed_cancelled_total", "phase", "running"), 1);
  EXPECT_EQ(Count("sparsed_requests_total", "code", "CANCELLED"), 1);
  EXPECT_FALSE(server_.Cancel("unwanted"));
  ExpectServes();
}

TEST_F(EndingTest, AClientThatVanishesFreesTheRow) {
  Subprocess client({SPARSED_BINARY_DIR "/bin/sparsectl", "chat", "Write a story about: fox, king",
                     "--gen-length", "256", "--steps", "256", "--preset", "sparsed", "--skip", "0",
                     "--no-guard", "--no-stop-on-end"},
                    {.environment = {"SPARSED_SERVER=" + server_.address()}});
  // A scrape that fails is a failure, and no reason to try again.
  ASSERT_TRUE(Eventually([this] { return Count(kSteps, "phase", "sparse") > 0 || HasFailure(); }));
  EXPECT_GT(server_.Load().mask_bytes_used(), 0u);
  client.Signal(SIGKILL);
  EXPECT_EQ(client.Wait().exit_code, 128 + SIGKILL);
  EXPECT_TRUE(server_.BecomesIdle());
  EXPECT_EQ(Count("sparsed_cancelled_total", "phase", "running"), 1);
  EXPECT_LT(Count(kSteps, "phase", "sparse"), 255);  // it did not run to its end
  ExpectServes();
}

TEST_F(EndingTest, ADeadlineFreesTheRow) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
  v1::GenerateResponse response;
  const grpc::Status status = server_.stub().Generate(&context, LongStory("late"), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(server_.BecomesIdle());
  EXPECT_EQ(Count("sparsed_deadline_miss_total", "phase", "running"), 1);
  EXPECT_EQ(Count("sparsed_requests_total", "code", "DEADLINE_EXCEEDED"), 1);
  const Exposition metrics = server_.Scrape();
  EXPECT_EQ(metrics.Value("sparsed_mask_builds_total"), metrics.Value("sparsed_mask_frees_total"));
  ExpectServes();
}

class OverloadTest : public ::testing::Test {
 protected:
  LiveServer server_{{"--max-rows", "1", "--max-queue", "1"}};
};

TEST_F(OverloadTest, AFullQueueRefusesWithARetryTimeAndServesAgain) {
  OpenStream running(server_.stub(), LongStory("running"));
  ASSERT_TRUE(running.ReadUntil(v1::PHASE_SPARSE));
  OpenStream queued(server_.stub(), LongStory("queued"));
  ASSERT_TRUE(Eventually([this] { return server_.Load().queued_requests() == 1; }));

  const grpc::Status refused = Record(server_.stub(), Story()).status;
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto retry = FindDetail<google::rpc::RetryInfo>(refused);
  ASSERT_TRUE(retry) << refused.error_message();
  EXPECT_GE(retry->retry_delay().seconds(), 1);

  EXPECT_TRUE(server_.Cancel("running"));
  EXPECT_TRUE(queued.ReadUntil(v1::PHASE_SPARSE));  // its turn
  EXPECT_TRUE(server_.Cancel("queued"));
  EXPECT_EQ(running.Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(queued.Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(Record(server_.stub(), Story()).status.ok());
  EXPECT_EQ(server_.Scrape().Value("sparsed_requests_total", "code", "RESOURCE_EXHAUSTED"), 1);
}

TEST_F(OverloadTest, QueueSecondsAreTheWaitThatAClientSees) {
  OpenStream running(server_.stub(), LongStory("running"));
  ASSERT_TRUE(running.ReadUntil(v1::PHASE_SPARSE));
  const auto sent = std::chrono::steady_clock::now();
  std::future<Recording> waiting =
      std::async(std::launch::async, [this] { return Record(server_.stub(), Story()); });
  ASSERT_TRUE(Eventually([this] { return server_.Load().queued_requests() == 1; }));
  const auto seen_waiting = std::chrono::steady_clock::now();
  ASSERT_TRUE(running.ReadUntil(v1::PHASE_SPARSE));
  EXPECT_EQ(server_.Load().queued_requests(), 1u);
  const std::chrono::duration<double> at_least = std::chrono::steady_clock::now() - seen_waiting;
  EXPECT_TRUE(server_.Cancel("running"));
  EXPECT_EQ(running.Finish().error_code(), grpc::StatusCode::CANCELLED);

  const Recording recording = waiting.get();
  const std::chrono::duration<double> at_most = std::chrono::steady_clock::now() - sent;
  EXPECT_GE(recording.started.queue_seconds(), at_least.count());
  EXPECT_LE(recording.started.queue_seconds(), at_most.count());
  EXPECT_EQ(recording.started.queue_seconds(), recording.finished.timings().queue_seconds());
  EXPECT_GE(recording.finished.timings().first_commit_seconds(), recording.started.queue_seconds());
}

}  // namespace
}  // namespace sparsed::testing
