// SPDX-License-Identifier: Apache-2.0
#include "client/canvas_view.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sparsed::client {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

constexpr uint32_t kPrompt = 100;

struct EditSpec {
  uint32_t offset;  // from the start of the generation
  std::string piece;
  bool committed = true;
};

void Apply(CanvasView& view, const std::vector<EditSpec>& specs) {
  google::protobuf::RepeatedPtrField<v1::Edit> edits;
  for (const EditSpec& spec : specs) {
    v1::Edit& edit = *edits.Add();
    edit.set_position(kPrompt + spec.offset);
    edit.set_piece(spec.piece);
    edit.set_committed(spec.committed);
  }
  view.Apply(edits);
}

std::string TextOf(const CanvasView& view) {
  std::string text;
  for (const Cell& cell : view.Cells()) text += cell.text;
  return text;
}

// Text of neighbouring cells of the same style.
std::vector<std::pair<std::string, CellStyle>> RunsOf(const CanvasView& view) {
  std::vector<std::pair<std::string, CellStyle>> runs;
  for (const Cell& cell : view.Cells()) {
    if (runs.empty() || runs.back().second != cell.style) runs.emplace_back("", cell.style);
    runs.back().first += cell.text;
  }
  return runs;
}

TEST(CanvasViewTest, BeginsOpen) {
  EXPECT_EQ(TextOf(CanvasView(kPrompt, 3)), "░░░");
  EXPECT_EQ(TextOf(CanvasView(kPrompt, 0)), "");
}

TEST(CanvasViewTest, EditsInAnyOrderSpellTheTextByPosition) {
  CanvasView view(kPrompt, 4);
  Apply(view, {{3, "d"}, {0, "a"}});
  EXPECT_EQ(TextOf(view), "a░░d");
  Apply(view, {{2, "c"}, {1, "b"}});
  EXPECT_EQ(TextOf(view), "abcd");
}

TEST(CanvasViewTest, OnlyTheLastEventIsFresh) {
  CanvasView view(kPrompt, 4);
  Apply(view, {{0, "a"}, {1, "b"}});
  Apply(view, {{2, "c"}, {3, "x", false}});
  EXPECT_THAT(RunsOf(view),
              ElementsAre(Pair("ab", CellStyle::kCommitted), Pair("c", CellStyle::kFresh),
                          Pair("x", CellStyle::kProvisional)));
}

TEST(CanvasViewTest, CommittedWinsOverPredictionWhicheverComesFirst) {
  CanvasView view(kPrompt, 2);
  Apply(view, {{0, "a"}, {0, "wrong", false}, {1, "wrong", false}, {1, "b"}});
  EXPECT_EQ(TextOf(view), "ab");
  Apply(view, {{0, "late", false}, {1, "other"}});
  EXPECT_EQ(TextOf(view), "ab");
}

TEST(CanvasViewTest, PredictionIsReplacedByTheNextOne) {
  CanvasView view(kPrompt, 1);
  Apply(view, {{0, "x", false}});
  Apply(view, {{0, "y", false}});
  EXPECT_EQ(TextOf(view), "y");
}

TEST(CanvasViewTest, PositionsOutsideTheGenerationAreIgnored) {
  CanvasView view(kPrompt, 2);
  google::protobuf::RepeatedPtrField<v1::Edit> edits;
  for (const uint32_t position : {0u, kPrompt - 1, kPrompt + 2, 0xFFFFFFFFu}) {
    v1::Edit& edit = *edits.Add();
    edit.set_position(position);
    edit.set_piece("x");
    edit.set_committed(true);
  }
  view.Apply(edits);
  EXPECT_EQ(TextOf(view), "░░");
}

TEST(CanvasViewTest, CharacterSplitOverPositionsIsShownWhenWhole) {
  CanvasView view(kPrompt, 3);  // 東 is E6 9D B1
  Apply(view, {{0, "\xE6"}});
  EXPECT_EQ(TextOf(view), "▒░░");
  Apply(view, {{2, "\xB1"}});
  EXPECT_EQ(TextOf(view), "▒░▒");
  Apply(view, {{1, "\x9D"}});
  EXPECT_EQ(TextOf(view), "東");
}

TEST(CanvasViewTest, BytesThatCanNeverBeACharacterAreReplaced) {
  CanvasView view(kPrompt, 2);
  Apply(view, {{0, "a\xFF"}, {1, "b"}});
  EXPECT_EQ(TextOf(view), "a\uFFFDb");
}

TEST(CanvasViewTest, SplitCharacterHasTheStyleOfWhereItBegins) {
  CanvasView view(kPrompt, 2);
  Apply(view, {{0, "\xE6\x9D"}});
  Apply(view, {{1, "\xB1!"}});
  EXPECT_THAT(RunsOf(view),
              ElementsAre(Pair("東", CellStyle::kCommitted), Pair("!", CellStyle::kFresh)));
}

TEST(CanvasViewTest, TokensWithoutTextAreVisible) {
  CanvasView view(kPrompt, 3);
  Apply(view, {{0, "a"}, {1, ""}, {2, "", false}});
  EXPECT_THAT(RunsOf(view), ElementsAre(Pair("a", CellStyle::kFresh), Pair("··", CellStyle::kEnd)));
}

}  // namespace
}  // namespace sparsed::client
