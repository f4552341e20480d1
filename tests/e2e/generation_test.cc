// SPDX-License-Identifier: Apache-2.0
// What a stream tells is whole, consistent and, from the embedded model, right.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "tests/e2e/live_server.h"
#include "tests/e2e/recording.h"

namespace sparsed::testing {
namespace {

using ::google::protobuf::util::MessageDifferencer;

class GenerationTest : public ::testing::Test {
 protected:
  Recording Run(const v1::GenerateRequest& request) {
    Recording recording = Record(server_.stub(), request);
    EXPECT_TRUE(recording.status.ok()) << recording.status.error_message();
    return recording;
  }

  std::string Detokenize(const std::vector<uint32_t>& ids) {
    grpc::ClientContext context;
    v1::DetokenizeRequest request;
    for (const uint32_t id : ids) request.add_ids(id);
    v1::DetokenizeResponse response;
    EXPECT_TRUE(server_.stub().Detokenize(&context, request, &response).ok());
    return response.text();
  }

  // started, progress…, finished, all of one request and numbered without gaps.
  static void ExpectOrdered(const Recording& recording) {
    ASSERT_EQ(recording.events.size(), recording.progress.size() + 2);
    EXPECT_TRUE(recording.events.front().has_started());
    EXPECT_TRUE(recording.events.back().has_finished());
    for (size_t i = 0; i < recording.events.size(); ++i) {
      EXPECT_EQ(recording.events[i].sequence(), i);
      EXPECT_EQ(recording.events[i].request_id(), recording.finished.request_id());
    }
    for (size_t i = 0; i < recording.progress.size(); ++i) {
      EXPECT_EQ(recording.progress[i].step(), i + 1);
      EXPECT_EQ(recording.progress[i].steps(), recording.started.steps());
    }
    EXPECT_EQ(recording.progress.size(), recording.finished.usage().steps());
  }

  // Every generated position is committed exactly once, to what the response holds; the pieces of
  // the edits and the ids both spell the text.
  void ExpectReplays(const Recording& recording) {
    std::map<uint32_t, v1::Edit> canvas;
    for (const v1::Progress& progress : recording.progress) {
      for (const v1::Edit& edit : progress.edits()) {
        EXPECT_TRUE(edit.committed());
        EXPECT_TRUE(edit.confidence() > 0 && edit.confidence() <= 1) << edit.confidence();
        EXPECT_TRUE(canvas.emplace(edit.position(), edit).second) << edit.position();
      }
    }
    const std::vector<uint32_t> ids = recording.token_ids();
    ASSERT_EQ(canvas.size(), ids.size());
    std::string pieces;
    const uint32_t generated = recording.finished.usage().generated_tokens();
    for (uint32_t i = 0; i < ids.size(); ++i) {
      const auto found = canvas.find(recording.started.prompt_tokens() + i);
      ASSERT_NE(found, canvas.end()) << i;
      EXPECT_EQ(found->second.token(), ids[i]) << i;
      if (i < generated) pieces += found->second.piece();
    }
    EXPECT_EQ(pieces, recording.finished.text());
    EXPECT_EQ(Detokenize({ids.begin(), ids.begin() + generated}), recording.finished.text());
  }

  // Steps of each phase as the response counts them, checked against the stream's.
  static std::map<v1::Phase, uint32_t> Phases(const Recording& recording) {
    std::map<v1::Phase, uint32_t> streamed;
    for (const v1::Progress& progress : recording.progress) ++streamed[progress.phase()];
    std::map<v1::Phase, uint32_t> counted;
    for (const v1::PhaseTime& phase : recording.finished.timings().phases()) {
      counted[phase.phase()] = phase.steps();
      EXPECT_GT(phase.seconds(), 0);
    }
    EXPECT_EQ(streamed, counted);
    return counted;
  }

  LiveServer server_;
};

TEST_F(GenerationTest, AStreamReplaysToItsResponse) {
  const Recording story = Run(Story());
  ExpectOrdered(story);
  ExpectReplays(story);
  EXPECT_EQ(story.finished.finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(Phases(story), (std::map<v1::Phase, uint32_t>{{v1::PHASE_DENSE, 16}}));
  // 32 tokens in 16 steps, two blocks from left to right.
  for (const v1::Progress& progress : story.progress) {
    EXPECT_EQ(progress.edits_size(), 2);
    for (const v1::Edit& edit : progress.edits()) {
      const uint32_t block = (edit.position() - story.started.prompt_tokens()) / 16;
      EXPECT_EQ(block, (progress.step() - 1) / 8);
    }
    EXPECT_EQ(progress.density(), 1);
    EXPECT_FALSE(progress.has_retained_mass());
  }
  EXPECT_FALSE(story.finished.sparsity().has_density());
  EXPECT_EQ(story.finished.usage().tokens_per_forward(), 2);
}

TEST_F(GenerationTest, AnswersASumAndStopsAtItsEnd) {
  const Recording sum = Run(Ask("What is 21 + 34?"));
  ExpectOrdered(sum);
  ExpectReplays(sum);
  EXPECT_EQ(sum.finished.text(), "55");
  EXPECT_EQ(sum.finished.usage().generated_tokens(), 2u);
  EXPECT_EQ(sum.finished.finish_reason(), v1::FINISH_REASON_END_OF_TEXT);
  EXPECT_LT(sum.finished.usage().steps(), 32u);
}

TEST_F(GenerationTest, FindsAPassKeyWithSparseAttention) {
  const Recording sparse = Run(AskForPassKey());
  ExpectOrdered(sparse);
  ExpectReplays(sparse);
  EXPECT_EQ(sparse.finished.text(), kPassKey);
  // skip 0.2 of 16 steps: 3 dense ones, the last of which builds the mask.
  EXPECT_EQ(Phases(sparse),
            (std::map<v1::Phase, uint32_t>{
                {v1::PHASE_DENSE, 2}, {v1::PHASE_BUILD, 1}, {v1::PHASE_SPARSE, 13}}));
  const v1::Sparsity& sparsity = sparse.finished.sparsity();
  for (const v1::Progress& progress : sparse.progress) {
    const bool is_sparse = progress.step() > 3;
    EXPECT_EQ(progress.phase(), is_sparse              ? v1::PHASE_SPARSE
                                : progress.step() == 3 ? v1::PHASE_BUILD
                                                       : v1::PHASE_DENSE);
    EXPECT_EQ(progress.density(), is_sparse ? sparsity.density() : 1);
    EXPECT_EQ(progress.has_retained_mass(), progress.step() >= 3);
  }
  EXPECT_GT(sparsity.density(), 0);
  EXPECT_LT(sparsity.density(), 1);
  // More than the same share of blocks would keep if they were drawn at random.
  EXPECT_GT(sparsity.retained_mass(), sparsity.density());
  EXPECT_LE(sparsity.retained_mass(), 1);
  EXPECT_DOUBLE_EQ(sparsity.mean_density(), (3 + 13 * sparsity.density()) / 16);
  EXPECT_GT(sparsity.mask_bytes(), 0u);
  EXPECT_FALSE(sparsity.has_guard());
  ASSERT_EQ(sparsity.layers_size(), 8);
  double density = 0;
  double retained_mass = 0;
  for (const v1::LayerSparsity& layer : sparsity.layers()) {
    density += layer.density() / 8;
    retained_mass += layer.retained_mass() / 8;
  }
  EXPECT_NEAR(density, sparsity.density(), 1e-5);
  EXPECT_NEAR(retained_mass, sparsity.retained_mass(), 1e-5);
}

TEST_F(GenerationTest, AMaskCanBeMadeInEveryStep) {
  v1::GenerateRequest request = AskForPassKey();
  request.clear_attention();
  request.mutable_attention()->set_preset("nabla");
  request.mutable_attention()->set_mass(0.99);
  request.mutable_attention()->set_block_tokens(32);
  request.mutable_attention()->set_guard(false);
  const Recording recording = Run(request);
  ExpectReplays(recording);
  EXPECT_EQ(recording.finished.text(), kPassKey);
  EXPECT_EQ(Phases(recording), (std::map<v1::Phase, uint32_t>{{v1::PHASE_REBUILD, 16}}));
  EXPECT_LT(recording.finished.sparsity().mean_density(), 1);
}

TEST_F(GenerationTest, AShortCanvasIsGuarded) {
  v1::GenerateRequest request = Story();
  request.mutable_attention()->set_preset("sparsed");  // one block of 128 tokens
  const Recording story = Run(request);
  EXPECT_EQ(story.finished.sparsity().guard(), "short_canvas");
  EXPECT_EQ(story.finished.sparsity().mask_bytes(), 0u);
  EXPECT_EQ(Phases(story), (std::map<v1::Phase, uint32_t>{{v1::PHASE_DENSE, 16}}));
}

TEST_F(GenerationTest, FindsThePassKeyWithDenseAttentionToo) {
  v1::GenerateRequest request = AskForPassKey();
  request.clear_attention();
  request.mutable_attention()->set_preset("dense");
  request.mutable_decoding()->set_stop_on_end(true);
  EXPECT_EQ(Run(request).finished.text(), kPassKey);
}

TEST_F(GenerationTest, TheEchoIsTheWholeRecipe) {
  v1::GenerateRequest request = Story();
  request.mutable_decoding()->clear_seed();
  request.mutable_decoding()->clear_block_length();
  request.mutable_attention()->set_preset("sparsed");
  const Recording first = Run(request);
  const v1::Resolved& resolved = first.finished.resolved();
  EXPECT_TRUE(MessageDifferencer::Equals(first.started.resolved(), resolved));
  EXPECT_TRUE(resolved.decoding().has_seed());
  EXPECT_EQ(resolved.decoding().block_length(), 32u);  // the model's default
  EXPECT_EQ(resolved.decoding().gen_length(), 32u);    // what was asked
  EXPECT_EQ(resolved.attention().ratio(), 0.3);        // the preset's
  EXPECT_EQ(resolved.attention().skip(), 0.2);

  *request.mutable_decoding() = resolved.decoding();
  *request.mutable_attention() = resolved.attention();
  const Recording second = Run(request);
  EXPECT_EQ(first.token_ids(), second.token_ids());
  EXPECT_TRUE(MessageDifferencer::Equals(second.finished.resolved(), resolved));
}

}  // namespace
}  // namespace sparsed::testing
