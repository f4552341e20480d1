// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/wire.h"

#include <gmock/gmock.h>
#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

#include "engine/base/invalid_field.h"
#include "sparsed/v1/generation.pb.h"
#include "tests/support/matchers.h"

namespace sparsed {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

// A request whose text fields hold `text`, in bytes that no checking writer would make.
std::string RequestBytes(const std::string& placeholder, const std::string& text) {
  v1::GenerateRequest request;
  v1::ChatMessage& message = *request.mutable_chat()->add_messages();
  message.set_role("user");
  message.set_content(placeholder);
  std::string bytes = request.SerializeAsString();
  return bytes.replace(bytes.find(placeholder), placeholder.size(), text);
}

TEST(WireTest, BuffersRoundTripInPieces) {
  v1::GenerateRequest request;
  request.set_prompt(std::string(100'000, 'x'));
  const std::string bytes = request.SerializeAsString();
  const grpc::Slice slices[] = {grpc::Slice(bytes.substr(0, 7)), grpc::Slice(bytes.substr(7))};
  v1::GenerateRequest parsed;
  EXPECT_THAT(ParseMessage(grpc::ByteBuffer(slices, 2), &parsed), IsOk());
  EXPECT_EQ(parsed.prompt(), request.prompt());
  v1::GenerateRequest again;
  EXPECT_THAT(ParseMessage(SerializeMessage(parsed), &again), IsOk());
  EXPECT_EQ(again.prompt(), request.prompt());
}

TEST(WireTest, TextThatIsNotUtf8IsNamedWithItsOffset) {
  v1::GenerateRequest request;
  const absl::Status status =
      ParseMessageBytes(RequestBytes("PLACEHOLDER", "good \xff text"), &request);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("offset 5")));
  EXPECT_EQ(InvalidFieldPath(status), "chat.messages.content");
}

TEST(WireTest, BytesThatAreNoMessageAreRefused) {
  v1::GenerateRequest request;
  for (const std::string bytes : {"\x12\xff", "\x12\x05x", "\xff\xff\xff\xff\xff"}) {
    EXPECT_THAT(ParseMessageBytes(bytes, &request),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("GenerateRequest")));
  }
}

TEST(WireTest, AnEmptyBufferIsAnEmptyMessage) {
  v1::GenerateRequest request;
  EXPECT_THAT(ParseMessageBytes("", &request), IsOk());
}

}  // namespace
}  // namespace sparsed
