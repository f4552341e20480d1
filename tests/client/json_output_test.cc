// SPDX-License-Identifier: Apache-2.0
#include "client/json_output.h"

#include <gmock/gmock.h>
#include <google/rpc/error_details.pb.h>
#include <google/rpc/status.pb.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "sparsed/v1/generation.pb.h"

namespace sparsed::client {
namespace {

using nlohmann::json;

TEST(JsonOutputTest, OneLineWithProtoFieldNamesAndZeros) {
  v1::GenerateResponse response;
  response.set_text("two\nlines \"quoted\"");
  response.add_token_ids(7);
  response.mutable_usage()->set_prompt_tokens(3);
  const std::string line = JsonLine(response);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const json parsed = json::parse(line);
  EXPECT_EQ(parsed["text"], response.text());
  EXPECT_EQ(parsed["token_ids"], json::array({7}));
  EXPECT_EQ(parsed["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(parsed["usage"]["generated_tokens"], 0);
}

TEST(JsonOutputTest, UnsetOptionalFieldsAreAbsent) {
  v1::Progress progress;
  EXPECT_FALSE(json::parse(JsonLine(progress)).contains("retained_mass"));
  progress.set_retained_mass(0.5);
  EXPECT_EQ(json::parse(JsonLine(progress))["retained_mass"], 0.5);
}

TEST(JsonOutputTest, ErrorCarriesCodeMessageAndViolations) {
  google::rpc::BadRequest bad_request;
  bad_request.add_field_violations()->set_field("decoding.steps");
  google::rpc::Status rich;
  rich.set_message("bad steps");
  rich.add_details()->PackFrom(bad_request);
  const json parsed = json::parse(JsonErrorLine(
      grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "bad steps", rich.SerializeAsString())));
  EXPECT_EQ(parsed["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(parsed["error"]["message"], "bad steps");
  const json& detail = parsed["error"]["details"].at(0);
  EXPECT_EQ(detail["@type"], "type.googleapis.com/google.rpc.BadRequest");
  EXPECT_EQ(detail["field_violations"].at(0)["field"], "decoding.steps");
}

TEST(JsonOutputTest, ErrorWithoutDetailsHasAnEmptyList) {
  const json parsed =
      json::parse(JsonErrorLine(grpc::Status(grpc::StatusCode::UNAVAILABLE, "nobody")));
  EXPECT_EQ(parsed["error"]["code"], "UNAVAILABLE");
  EXPECT_EQ(parsed["error"]["details"], json::array());
}

}  // namespace
}  // namespace sparsed::client
