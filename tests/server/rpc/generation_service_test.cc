// SPDX-License-Identifier: Apache-2.0
// What answers hold: happy paths of every method.
#include <algorithm>
#include <map>
#include <sstream>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "server/version.h"
#include "tests/server/captured_log.h"
#include "tests/server/rpc/status_details.h"
#include "tests/server/rpc/test_server.h"
#include "tests/support/exposition.h"
#include "tests/support/matchers.h"

namespace sparsed::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Stream {
  std::vector<v1::GenerateEvent> events;
  grpc::Status status;

  const v1::GenerateResponse& finished() const { return events.back().finished(); }
  std::vector<v1::Progress> progress() const {
    std::vector<v1::Progress> found;
    for (const v1::GenerateEvent& event : events) {
      if (event.has_progress()) found.push_back(event.progress());
    }
    return found;
  }
};

class GenerationServiceTest : public ::testing::Test {
 protected:
  grpc::Status Generate(const v1::GenerateRequest& request, v1::GenerateResponse* response) {
    grpc::ClientContext context;
    return server_.stub().Generate(&context, request, response);
  }

  Stream ReadStream(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    const auto reader = server_.stub().GenerateStream(&context, request);
    Stream stream;
    for (v1::GenerateEvent event; reader->Read(&event);) stream.events.push_back(event);
    stream.status = reader->Finish();
    return stream;
  }

  v1::TokenizeResponse Tokenize(const std::string& text) {
    grpc::ClientContext context;
    v1::TokenizeRequest request;
    request.set_text(text);
    v1::TokenizeResponse response;
    EXPECT_TRUE(server_.stub().Tokenize(&context, request, &response).ok());
    return response;
  }

  std::string Detokenize(const std::vector<uint32_t>& ids, bool skip_special = true) {
    grpc::ClientContext context;
    v1::DetokenizeRequest request;
    for (const uint32_t id : ids) request.add_ids(id);
    request.set_skip_special(skip_special);
    v1::DetokenizeResponse response;
    EXPECT_TRUE(server_.stub().Detokenize(&context, request, &response).ok());
    return response.text();
  }

  TestServer server_;
};

TEST_F(GenerationServiceTest, GenerateReturnsTheWholeResult) {
  v1::GenerateResponse response;
  v1::GenerateRequest request = SparseRequest(32);
  request.set_request_id("story-1");
  const grpc::Status status = Generate(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.request_id(), "story-1");
  const auto prompt_tokens = static_cast<uint32_t>(Tokenize("Once upon a time").ids_size());
  ASSERT_EQ(response.token_ids_size(), 32);
  std::vector<uint32_t> expected;
  for (uint32_t i = 0; i < 32; ++i) {
    expected.push_back(
        static_cast<uint32_t>(FakeEngine::TokenAt(static_cast<int32_t>(prompt_tokens + i))));
  }
  EXPECT_EQ(std::vector<uint32_t>(response.token_ids().begin(), response.token_ids().end()),
            expected);
  EXPECT_EQ(response.text(), Detokenize(expected));
  EXPECT_EQ(response.finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(response.usage().prompt_tokens(), prompt_tokens);
  EXPECT_EQ(response.usage().generated_tokens(), 32u);
  EXPECT_EQ(response.usage().steps(), 32u);
  EXPECT_EQ(response.sparsity().retained_mass(), FakeEngine::kRetainedMass);
  EXPECT_EQ(response.sparsity().mask_bytes(), 1000u);
  EXPECT_EQ(response.sparsity().layers_size(), 8);
  EXPECT_EQ(response.sparsity().layers(0).density(), 0.125);
  EXPECT_EQ(response.sparsity().layers(1).density(), 0.375);
  EXPECT_FALSE(response.sparsity().has_guard());
  EXPECT_EQ(response.resolved().decoding().gen_length(), 32u);
  EXPECT_EQ(response.resolved().attention().preset(), "sparsed");
  EXPECT_TRUE(response.resolved().decoding().has_seed());
  server_.ExpectAllFreed();
}

TEST_F(GenerationServiceTest, StreamNumbersEventsWithoutGaps) {
  const Stream stream = ReadStream(StoryRequest());
  ASSERT_TRUE(stream.status.ok()) << stream.status.error_message();
  ASSERT_GE(stream.events.size(), 3u);
  EXPECT_TRUE(stream.events.front().has_started());
  EXPECT_TRUE(stream.events.back().has_finished());
  for (size_t i = 0; i < stream.events.size(); ++i) {
    EXPECT_EQ(stream.events[i].sequence(), i);
    EXPECT_EQ(stream.events[i].request_id(), stream.finished().request_id());
  }
  EXPECT_NE(stream.finished().request_id(), "");
  EXPECT_EQ(stream.events.front().started().steps(), 32u);
  EXPECT_EQ(stream.events.front().started().prompt_tokens(),
            stream.finished().usage().prompt_tokens());
  EXPECT_EQ(stream.events.front().started().resolved().SerializeAsString(),
            stream.finished().resolved().SerializeAsString());
}

TEST_F(GenerationServiceTest, CommittedEditsReplayToTheResult) {
  const Stream stream = ReadStream(SparseRequest(64));
  ASSERT_TRUE(stream.status.ok()) << stream.status.error_message();
  std::map<uint32_t, v1::Edit> canvas;
  for (const v1::Progress& progress : stream.progress()) {
    for (const v1::Edit& edit : progress.edits()) {
      EXPECT_TRUE(edit.committed());  // provisional ones were not asked for
      EXPECT_TRUE(canvas.emplace(edit.position(), edit).second) << "committed twice";
    }
  }
  const v1::GenerateResponse& finished = stream.finished();
  ASSERT_EQ(canvas.size(), 64u);
  EXPECT_EQ(canvas.begin()->first, finished.usage().prompt_tokens());
  std::string text;
  for (int i = 0; i < 64; ++i) {
    const v1::Edit& edit = canvas.at(finished.usage().prompt_tokens() + static_cast<uint32_t>(i));
    EXPECT_EQ(edit.token(), finished.token_ids(i));
    text += edit.piece();
  }
  EXPECT_EQ(text, finished.text());
  EXPECT_EQ(stream.progress().back().step(), 64u);
}

TEST_F(GenerationServiceTest, EveryStepsThinsProgress) {
  v1::GenerateRequest request = StoryRequest(32);
  request.mutable_streaming()->set_every_steps(10);
  const Stream stream = ReadStream(request);
  ASSERT_TRUE(stream.status.ok());
  size_t edits = 0;
  for (const v1::Progress& progress : stream.progress()) {
    edits += static_cast<size_t>(progress.edits_size());
  }
  EXPECT_LE(stream.progress().size(), 4u);  // 10, 20, 30, 32, or fewer where the reader was slow
  EXPECT_EQ(stream.progress().back().step(), 32u);
  EXPECT_EQ(edits, 32u);
}

TEST_F(GenerationServiceTest, HugeEverySendsOneProgress) {
  v1::GenerateRequest request = StoryRequest(32);
  request.mutable_streaming()->set_every_steps(0xFFFFFFFF);
  const Stream stream = ReadStream(request);
  ASSERT_TRUE(stream.status.ok());
  EXPECT_EQ(stream.progress().size(), 1u);
}

TEST_F(GenerationServiceTest, ProvisionalEditsComeWhenAskedFor) {
  v1::GenerateRequest request = StoryRequest(32);
  request.mutable_decoding()->set_steps(2);
  request.mutable_streaming()->set_provisional(true);
  server_.engine().gate().Close();
  grpc::ClientContext context;
  const auto reader = server_.stub().GenerateStream(&context, request);
  server_.engine().gate().WaitUntilHeld();
  v1::GenerateEvent event;
  ASSERT_TRUE(reader->Read(&event));  // started
  server_.engine().gate().LetOneThrough();
  ASSERT_TRUE(reader->Read(&event));
  int committed = 0;
  for (const v1::Edit& edit : event.progress().edits()) committed += edit.committed() ? 1 : 0;
  EXPECT_EQ(committed, 16);
  EXPECT_EQ(event.progress().edits_size(), 32);
  server_.engine().gate().Open();
  while (reader->Read(&event)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(GenerationServiceTest, ChatIsRenderedWithTheTemplate) {
  v1::TokenizeRequest request;
  v1::ChatMessage& message = *request.mutable_chat()->add_messages();
  message.set_role("user");
  message.set_content("Hello");
  grpc::ClientContext context;
  v1::TokenizeResponse tokens;
  ASSERT_TRUE(server_.stub().Tokenize(&context, request, &tokens).ok());
  const std::vector<uint32_t> ids(tokens.ids().begin(), tokens.ids().end());
  EXPECT_EQ(Detokenize(ids, /*skip_special=*/false),
            "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");

  v1::GenerateRequest generate;
  *generate.mutable_chat() = request.chat();
  v1::GenerateResponse response;
  ASSERT_TRUE(Generate(generate, &response).ok());
  EXPECT_EQ(response.usage().prompt_tokens(), static_cast<uint32_t>(tokens.ids_size()));
}

TEST_F(GenerationServiceTest, ControlTokensInTextStayText) {
  const v1::TokenizeResponse tokens = Tokenize("a <|eot_id|> b <|mdm_mask|>");
  const std::vector<uint32_t> ids(tokens.ids().begin(), tokens.ids().end());
  EXPECT_THAT(ids, Not(Contains(5u)));
  EXPECT_THAT(ids, Not(Contains(2u)));
  EXPECT_EQ(Detokenize(ids), "a <|eot_id|> b <|mdm_mask|>");
}

TEST_F(GenerationServiceTest, PiecesOfSplitCharactersAreRawBytes) {
  const std::string fox = "\xf0\x9f\xa6\x8a";  // one character, several tokens
  const v1::TokenizeResponse tokens = Tokenize(fox);
  ASSERT_GE(tokens.ids_size(), 2);
  std::string joined;
  for (const std::string& piece : tokens.pieces()) joined += piece;
  EXPECT_EQ(joined, fox);
  EXPECT_EQ(Detokenize({tokens.ids(0)}), "\xef\xbf\xbd");  // U+FFFD
}

TEST_F(GenerationServiceTest, DetokenizeNamesABadId) {
  grpc::ClientContext context;
  v1::DetokenizeRequest request;
  request.add_ids(1);
  request.add_ids(4096);
  v1::DetokenizeResponse response;
  const grpc::Status status = server_.stub().Detokenize(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(BadField(status), "ids[1]");
}

TEST_F(GenerationServiceTest, GetModelDescribesTheModel) {
  grpc::ClientContext context;
  v1::GetModelResponse model;
  ASSERT_TRUE(server_.stub().GetModel(&context, v1::GetModelRequest(), &model).ok());
  EXPECT_EQ(model.name(), "demo-llada-17m");
  EXPECT_EQ(model.max_length(), 4096u);
  EXPECT_EQ(model.mask_token(), 2u);
  EXPECT_THAT(model.end_tokens(), ElementsAre(1u, 5u));
  EXPECT_TRUE(model.chat_template());
  EXPECT_EQ(model.server_version(), ServerVersion());
}

TEST_F(GenerationServiceTest, GetLoadShowsRowsAndMasks) {
  server_.engine().gate().Close();
  grpc::ClientContext stream_context;
  const auto reader = server_.stub().GenerateStream(&stream_context, SparseRequest());
  server_.engine().gate().WaitUntilHeld();
  grpc::ClientContext context;
  v1::GetLoadResponse load;
  ASSERT_TRUE(server_.stub().GetLoad(&context, v1::GetLoadRequest(), &load).ok());
  EXPECT_EQ(load.running_rows(), 1u);
  EXPECT_EQ(load.max_rows(), 4u);
  EXPECT_EQ(load.queued_requests(), 0u);
  EXPECT_EQ(load.max_queued_requests(), 8u);
  EXPECT_EQ(load.mask_bytes_used(), 1000u);
  EXPECT_EQ(load.mask_bytes_budget(), 4000u);
  EXPECT_FALSE(load.draining());
}

TEST_F(GenerationServiceTest, AThrowingHandlerIsAnInternalErrorOfItsCallOnly) {
  server_.engine().validate = [](const Request&) -> absl::Status {
    throw std::runtime_error("broken on purpose");
  };
  v1::GenerateResponse response;
  const grpc::Status status = Generate(StoryRequest(), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_THAT(status.error_message(), HasSubstr("broken on purpose"));
  EXPECT_EQ(ReadStream(StoryRequest()).status.error_code(), grpc::StatusCode::INTERNAL);
  server_.engine().validate = nullptr;
  EXPECT_TRUE(Generate(StoryRequest(), &response).ok());
  server_.ExpectAllFreed();
}

TEST_F(GenerationServiceTest, RefusedRequestsAreCounted) {
  v1::GenerateResponse response;
  EXPECT_FALSE(Generate(v1::GenerateRequest(), &response).ok());
  EXPECT_TRUE(Generate(StoryRequest(), &response).ok());
  server_.ExpectAllFreed();
  ASSERT_OK_AND_ASSIGN(const Exposition metrics, Exposition::Parse(server_.metrics().Expose()));
  EXPECT_EQ(metrics.Value("sparsed_requests_total", "code", "INVALID_ARGUMENT"), 1);
  EXPECT_EQ(metrics.Value("sparsed_requests_total", "code", "OK"), 1);
}

TEST_F(GenerationServiceTest, TheGuardIsToldInTheResponseAndTheLogUnlessTheRequestForbidsIt) {
  server_.engine().SetGuard(GuardReason::kShortCanvas);
  const CapturedLog log;
  v1::GenerateRequest request = SparseRequest();
  v1::GenerateResponse guarded;
  ASSERT_TRUE(Generate(request, &guarded).ok());
  EXPECT_EQ(guarded.sparsity().guard(), "short_canvas");
  EXPECT_EQ(guarded.sparsity().layers_size(), 0);
  EXPECT_TRUE(guarded.resolved().attention().guard());

  request.mutable_attention()->set_guard(false);
  v1::GenerateResponse sparse;
  ASSERT_TRUE(Generate(request, &sparse).ok());
  EXPECT_FALSE(sparse.sparsity().has_guard());
  EXPECT_EQ(sparse.sparsity().layers_size(), 8);
  EXPECT_FALSE(sparse.resolved().attention().guard());

  server_.ExpectAllFreed();
  const std::string text = log.text();
  EXPECT_THAT(text, HasSubstr("density=1.0 guard=short_canvas"));
  EXPECT_EQ(text.find("guard="), text.rfind("guard="));
}

TEST_F(GenerationServiceTest, ARebuildIsAPhaseOfTheStream) {
  v1::GenerateRequest request = SparseRequest();
  request.mutable_attention()->set_preset("nabla");
  const Stream stream = ReadStream(request);
  ASSERT_TRUE(stream.status.ok()) << stream.status.error_message();
  ASSERT_EQ(stream.finished().timings().phases_size(), 1);
  EXPECT_EQ(stream.finished().timings().phases(0).phase(), v1::PHASE_REBUILD);
  EXPECT_EQ(stream.finished().timings().phases(0).steps(), 32u);
  EXPECT_EQ(stream.progress().front().phase(), v1::PHASE_REBUILD);
}

TEST_F(GenerationServiceTest, EveryRequestIsOneLogLineWithoutItsText) {
  std::ostringstream lines;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines)));
  v1::GenerateRequest request = SparseRequest();
  request.set_request_id("seen");
  v1::GenerateResponse response;
  EXPECT_TRUE(Generate(request, &response).ok());
  EXPECT_TRUE(ReadStream(request).status.ok());
  request.mutable_decoding()->set_gen_length(0);
  EXPECT_FALSE(Generate(request, &response).ok());
  server_.ExpectAllFreed();
  spdlog::set_default_logger(before);
  const std::string text = lines.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
  EXPECT_THAT(text, HasSubstr("request id=seen peer=ipv4:127.0.0.1"));
  EXPECT_THAT(text,
              HasSubstr("code=OK preset=sparsed prompt_tokens=4 generated_tokens=32 steps=32"));
  EXPECT_THAT(text, HasSubstr("retained_mass=0.9"));
  EXPECT_THAT(text, HasSubstr("code=INVALID_ARGUMENT field=decoding.gen_length"));
  EXPECT_THAT(text, Not(HasSubstr("Once")));
}

}  // namespace
}  // namespace sparsed::testing
