// SPDX-License-Identifier: Apache-2.0
// What shares a step changes no token.
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/e2e/live_server.h"
#include "tests/e2e/recording.h"

namespace sparsed::testing {
namespace {

class BatchingTest : public ::testing::TestWithParam<const char*> {
 protected:
  // The story with the preset under test.
  static v1::GenerateRequest Request() {
    v1::GenerateRequest request = Story();
    request.mutable_attention()->set_preset(GetParam());
    if (request.attention().preset() == "dense") return request;
    request.mutable_attention()->set_block_tokens(32);
    request.mutable_attention()->set_guard(false);
    return request;
  }

  std::vector<uint32_t> Generate(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    v1::GenerateResponse response;
    const grpc::Status status = server_.stub().Generate(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return {response.token_ids().begin(), response.token_ids().end()};
  }

  // Long requests of other lengths, presets and guidance, all past their first steps.
  void StartNeighbours() {
    for (int i = 0; i < 3; ++i) {
      names_.push_back("neighbour-" + std::to_string(i));
      v1::GenerateRequest request = LongStory(names_.back());
      const uint32_t length = 80 + 16 * static_cast<uint32_t>(i);
      request.mutable_decoding()->set_gen_length(length);
      request.mutable_decoding()->set_steps(length);
      request.mutable_decoding()->set_seed(100 + static_cast<uint64_t>(i));
      if (i == 0) request.mutable_decoding()->set_cfg_scale(1.5);
      if (i == 2) {
        request.clear_attention();
        request.mutable_attention()->set_preset("dense");
      }
      neighbours_.push_back(std::make_unique<OpenStream>(server_.stub(), request));
      EXPECT_TRUE(neighbours_.back()->ReadUntil(i == 2 ? v1::PHASE_DENSE : v1::PHASE_SPARSE));
    }
  }

  // Their cancellation proves that they ran to the last.
  void StopNeighbours() {
    for (const std::string& name : names_) EXPECT_TRUE(server_.Cancel(name)) << name;
    for (const auto& neighbour : neighbours_) {
      EXPECT_EQ(neighbour->Finish().error_code(), grpc::StatusCode::CANCELLED);
    }
  }

  LiveServer server_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<OpenStream>> neighbours_;
};

TEST_P(BatchingTest, NeighboursChangeNoToken) {
  const std::vector<uint32_t> alone = Generate(Request());
  ASSERT_EQ(alone.size(), 32u);
  StartNeighbours();
  std::future<std::vector<uint32_t>> unary =
      std::async(std::launch::async, [this] { return Generate(Request()); });
  const Recording streamed = Record(server_.stub(), Request());
  EXPECT_EQ(unary.get(), alone);
  EXPECT_EQ(streamed.token_ids(), alone);
  StopNeighbours();
  EXPECT_TRUE(server_.BecomesIdle());
}

TEST_P(BatchingTest, AnotherSeedChangesTokens) {
  v1::GenerateRequest other = Request();
  other.mutable_decoding()->set_seed(8);
  EXPECT_NE(Generate(other), Generate(Request()));
}

INSTANTIATE_TEST_SUITE_P(Presets, BatchingTest,
                         ::testing::Values("dense", "sparsed", "ba_att", "nabla", "window"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace sparsed::testing
