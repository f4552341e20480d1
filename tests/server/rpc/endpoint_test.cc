// SPDX-License-Identifier: Apache-2.0
// What the socket answers beside GenerationService's messages: health, reflection, a server that is
// not ready, bytes that are no request.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/rpc/raw_client.h"
#include "tests/server/rpc/status_details.h"
#include "tests/server/rpc/test_server.h"

namespace sparsed::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kCheck[] = "/grpc.health.v1.Health/Check";
constexpr char kService[] = "sparsed.v1.GenerationService";

std::string Health(TestServer* server, const std::string& service) {
  std::string answer;
  const grpc::Status status =
      RawClient(server->channel()).Unary(kCheck, HealthRequest(service), &answer);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return answer;
}

TEST(EndpointTest, HealthFollowsServing) {
  TestServer server({.serving = false});
  for (const std::string service : {"", kService}) EXPECT_EQ(Health(&server, service), kNotServing);
  server.StartServing();
  for (const std::string service : {"", kService}) EXPECT_EQ(Health(&server, service), kServing);
  server.grpc().StopServing();
  for (const std::string service : {"", kService}) EXPECT_EQ(Health(&server, service), kNotServing);
}

TEST(EndpointTest, HealthWatchTellsChanges) {
  TestServer server({.serving = false});
  RawClient::Stream watch(server.channel(), "/grpc.health.v1.Health/Watch",
                          HealthRequest(kService));
  EXPECT_EQ(watch.Read(), kNotServing);
  server.StartServing();
  EXPECT_EQ(watch.Read(), kServing);
  server.grpc().StopServing();
  EXPECT_EQ(watch.Read(), kNotServing);
}

TEST(EndpointTest, ShutdownDoesNotWaitForWatchers) {
  TestServer server;
  RawClient::Stream watch(server.channel(), "/grpc.health.v1.Health/Watch", HealthRequest(""));
  EXPECT_EQ(watch.Read(), kServing);
  server.grpc().Shutdown();  // hangs if it waits
  while (watch.Read()) {
  }
}

TEST(EndpointTest, UnknownServiceHasNoHealth) {
  TestServer server;
  std::string answer;
  EXPECT_EQ(
      RawClient(server.channel()).Unary(kCheck, HealthRequest("nobody"), &answer).error_code(),
      grpc::StatusCode::NOT_FOUND);
}

TEST(EndpointTest, ReflectionListsTheService) {
  TestServer server;
  RawClient::Stream reflection(server.channel(),
                               "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                               "\x3a\x01*");  // list_services
  const std::optional<std::string> answer = reflection.Read();
  ASSERT_TRUE(answer);
  EXPECT_THAT(*answer, HasSubstr(kService));
  EXPECT_THAT(*answer, HasSubstr("grpc.health.v1.Health"));
}

TEST(EndpointTest, CallsWhileLoadingAreUnavailable) {
  TestServer server({.serving = false});
  {
    grpc::ClientContext context;
    v1::GenerateResponse response;
    const grpc::Status status = server.stub().Generate(&context, StoryRequest(), &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(status.error_message(), HasSubstr("loading"));
  }
  {
    grpc::ClientContext context;
    const auto reader = server.stub().GenerateStream(&context, StoryRequest());
    v1::GenerateEvent event;
    EXPECT_FALSE(reader->Read(&event));
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  }
  grpc::ClientContext context;
  v1::GetModelResponse model;
  EXPECT_EQ(server.stub().GetModel(&context, v1::GetModelRequest(), &model).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST(EndpointTest, TextThatIsNotUtf8IsNamed) {
  TestServer server;
  RawClient client(server.channel());
  std::string answer;
  const std::string bytes = "\x12\x03hi\xff";  // prompt
  const grpc::Status status =
      client.Unary("/sparsed.v1.GenerationService/Generate", bytes, &answer);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(BadField(status), "prompt");
  EXPECT_THAT(status.error_message(), HasSubstr("offset 2"));
  RawClient::Stream stream(server.channel(), "/sparsed.v1.GenerationService/GenerateStream", bytes);
  EXPECT_FALSE(stream.Read());
  EXPECT_EQ(Health(&server, ""), kServing);
}

TEST(EndpointTest, BytesThatAreNoMessageAreRefused) {
  TestServer server;
  RawClient client(server.channel());
  for (const char* method :
       {"Generate", "Cancel", "GetModel", "GetLoad", "Tokenize", "Detokenize"}) {
    std::string answer;
    const grpc::Status status = client.Unary(std::string("/sparsed.v1.GenerationService/") + method,
                                             "\x0a\xff\xff\xff", &answer);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
  }
}

TEST(EndpointTest, OversizedRequestsAreRefusedAndTheServerGoesOn) {
  TestServer server({.max_message_mib = 1});
  v1::GenerateRequest request = StoryRequest();
  request.set_prompt(std::string(2 << 20, 'a'));
  v1::GenerateResponse response;
  {
    grpc::ClientContext context;
    EXPECT_EQ(server.stub().Generate(&context, request, &response).error_code(),
              grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  grpc::ClientContext context;
  EXPECT_TRUE(server.stub().Generate(&context, StoryRequest(), &response).ok());
}

TEST(EndpointTest, ASecondServerCannotTakeThePort) {
  TestServer server;
  const auto second =
      GrpcServer::Start({.listen = "127.0.0.1:" + std::to_string(server.grpc().port())});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("--listen"));
}

}  // namespace
}  // namespace sparsed::testing
