// SPDX-License-Identifier: Apache-2.0
// Requests of the tests, and Recording: everything a stream said, with the client's own clock.
//
//   const Recording recording = Record(server.stub(), Ask("What is 21 + 34?"));
//   EXPECT_EQ(recording.finished.text(), "55");
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sparsed/v1/generation.grpc.pb.h"

namespace sparsed::testing {

// One message of a user: 32 tokens in one block and as many steps, greedy, the default attention.
v1::GenerateRequest Ask(const std::string& message);

// A text of about 500 tokens with five pass keys in it, and a question whose answer is
// kPassKey: 16 steps, preset sparsed in blocks of 32, whether or not that is faster.
v1::GenerateRequest AskForPassKey();
inline constexpr char kPassKey[] = "359893";

// A story in 32 tokens and 16 steps, sampled at temperature 0.8 with a fixed seed, never cut short.
v1::GenerateRequest Story();

// As Story, but with 256 steps and a mask from the first one on: a request to interrupt.
v1::GenerateRequest LongStory(const std::string& request_id);

struct Recording {
  grpc::Status status;
  std::vector<v1::GenerateEvent> events;
  std::vector<v1::Progress> progress;
  v1::Started started;
  v1::GenerateResponse finished;
  double wall_seconds = 0;          // from the call to its status
  double first_commit_seconds = 0;  // from the call to the first event with a committed edit

  std::vector<uint32_t> token_ids() const {
    return {finished.token_ids().begin(), finished.token_ids().end()};
  }
};

// The whole stream of one request.
Recording Record(v1::GenerationService::Stub& stub, const v1::GenerateRequest& request);

// A stream that the test reads event by event.
class OpenStream {
 public:
  OpenStream(v1::GenerationService::Stub& stub, const v1::GenerateRequest& request);

  // Reads on until the request has made a step in this phase; false if the stream ends before.
  bool ReadUntil(v1::Phase phase);
  // Reads the rest.
  grpc::Status Finish();

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::GenerateEvent>> reader_;
};

}  // namespace sparsed::testing
