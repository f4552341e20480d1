// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/recording.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/support/eventually.h"

namespace sparsed::testing {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string ReadData(const std::string& name) {
  std::ifstream file(std::string(SPARSED_SOURCE_DIR) + "/tests/e2e/data/" + name);
  EXPECT_TRUE(file.good()) << name;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

bool Commits(const v1::Progress& progress) {
  return std::any_of(progress.edits().begin(), progress.edits().end(),
                     [](const v1::Edit& edit) { return edit.committed(); });
}

}  // namespace

v1::GenerateRequest Ask(const std::string& message) {
  v1::GenerateRequest request;
  v1::ChatMessage& added = *request.mutable_chat()->add_messages();
  added.set_role("user");
  added.set_content(message);
  v1::Decoding& decoding = *request.mutable_decoding();
  decoding.set_gen_length(32);
  decoding.set_steps(32);
  decoding.set_block_length(32);
  decoding.set_temperature(0);
  return request;
}

v1::GenerateRequest AskForPassKey() {
  v1::GenerateRequest request = Ask(ReadData("pass_key.txt"));
  request.mutable_decoding()->set_steps(16);
  request.mutable_decoding()->set_stop_on_end(false);
  request.mutable_attention()->set_preset("sparsed");
  request.mutable_attention()->set_block_tokens(32);
  request.mutable_attention()->set_guard(false);
  return request;
}

v1::GenerateRequest Story() {
  v1::GenerateRequest request = Ask("Write a story about: fox, king");
  v1::Decoding& decoding = *request.mutable_decoding();
  decoding.set_steps(16);
  decoding.set_block_length(16);
  decoding.set_temperature(0.8);
  decoding.set_seed(7);
  decoding.set_stop_on_end(false);
  return request;
}

v1::GenerateRequest LongStory(const std::string& request_id) {
  v1::GenerateRequest request = Story();
  request.set_request_id(request_id);
  request.mutable_decoding()->set_gen_length(256);
  request.mutable_decoding()->set_steps(256);
  request.mutable_attention()->set_preset("sparsed");
  request.mutable_attention()->set_block_tokens(32);
  request.mutable_attention()->set_guard(false);
  request.mutable_attention()->set_skip(0);
  return request;
}

Recording Record(v1::GenerationService::Stub& stub, const v1::GenerateRequest& request) {
  Recording recording;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  const Clock::time_point start = Clock::now();
  const auto reader = stub.GenerateStream(&context, request);
  for (v1::GenerateEvent event; reader->Read(&event);) {
    recording.events.push_back(event);
    if (event.has_started()) recording.started = event.started();
    if (event.has_finished()) recording.finished = event.finished();
    if (!event.has_progress()) continue;
    recording.progress.push_back(event.progress());
    if (recording.first_commit_seconds == 0 && Commits(event.progress())) {
      recording.first_commit_seconds = SecondsSince(start);
    }
  }
  recording.status = reader->Finish();
  recording.wall_seconds = SecondsSince(start);
  return recording;
}

OpenStream::OpenStream(v1::GenerationService::Stub& stub, const v1::GenerateRequest& request) {
  context_.set_deadline(std::chrono::system_clock::now() + kPatience);
  reader_ = stub.GenerateStream(&context_, request);
}

bool OpenStream::ReadUntil(v1::Phase phase) {
  for (v1::GenerateEvent event; reader_->Read(&event);) {
    if (event.has_progress() && event.progress().phase() == phase) return true;
  }
  return false;
}

grpc::Status OpenStream::Finish() {
  for (v1::GenerateEvent event; reader_->Read(&event);) {
  }
  return reader_->Finish();
}

}  // namespace sparsed::testing
