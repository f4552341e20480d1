// SPDX-License-Identifier: Apache-2.0
// The endpoint over a real socket.
#include "server/http.h"

#include <string>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include "tests/support/exposition.h"
#include "tests/support/matchers.h"

namespace sparsed {
namespace {

using ::sparsed::testing::Exposition;
using ::sparsed::testing::StatusIs;
using ::testing::_;
using ::testing::AllOf;
using ::testing::HasSubstr;

class HttpTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto http = HttpEndpoint::Start({.address = "127.0.0.1", .port = 0}, &metrics_);
    ASSERT_TRUE(http.ok()) << http.status();
    http_ = *std::move(http);
  }

  httplib::Result Get(const std::string& path) {
    return httplib::Client("127.0.0.1", http_->port()).Get(path);
  }

  Metrics metrics_;
  std::unique_ptr<HttpEndpoint> http_;
};

TEST_F(HttpTest, LiveScrapeShowsTheCounts) {
  metrics_.committed_tokens_total.Add(42);
  const httplib::Result result = Get("/metrics");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status, 200);
  EXPECT_EQ(result->get_header_value("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  ASSERT_OK_AND_ASSIGN(const Exposition exposition, Exposition::Parse(result->body));
  EXPECT_EQ(exposition.Value("sparsed_committed_tokens_total"), 42);
}

TEST_F(HttpTest, ReadinessFollowsTheFlagAndLivenessDoesNot) {
  EXPECT_EQ(Get("/healthz")->status, 200);
  EXPECT_EQ(Get("/readyz")->status, 503);
  http_->SetReady(true);
  EXPECT_EQ(Get("/readyz")->status, 200);
  http_->SetReady(false);
  EXPECT_EQ(Get("/readyz")->status, 503);
  EXPECT_EQ(Get("/healthz")->status, 200);
}

TEST_F(HttpTest, AnythingElseIsNotFound) {
  for (const char* path : {"/", "/metrics/x", "/../metrics", "/readyz2"}) {
    EXPECT_EQ(Get(path)->status, 404) << path;
  }
}

TEST_F(HttpTest, TakenPortIsAnErrorThatNamesIt) {
  EXPECT_THAT(HttpEndpoint::Start({.address = "127.0.0.1", .port = http_->port()}, &metrics_),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("127.0.0.1"), HasSubstr(absl::StrCat(http_->port())))));
}

TEST_F(HttpTest, ForeignAddressAndImpossiblePortAreErrors) {
  EXPECT_THAT(HttpEndpoint::Start({.address = "192.0.2.1", .port = 0}, &metrics_),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("192.0.2.1")));
  EXPECT_THAT(HttpEndpoint::Start({.address = "127.0.0.1", .port = 70000}, &metrics_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("70000")));
}

TEST_F(HttpTest, StartAndStopInARowNeverHang) {
  for (int i = 0; i < 50; ++i) {
    EXPECT_THAT(HttpEndpoint::Start({.address = "127.0.0.1", .port = 0}, &metrics_),
                ::sparsed::testing::IsOk());
  }
}

}  // namespace
}  // namespace sparsed
