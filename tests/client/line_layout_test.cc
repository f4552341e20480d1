// SPDX-License-Identifier: Apache-2.0
#include "client/line_layout.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sparsed::client {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Le;
using ::testing::SizeIs;

std::string TextOf(const Line& line) {
  std::string text;
  for (const Cell& cell : line) text += cell.text;
  return text;
}

std::vector<std::string> TextsOf(const std::vector<Line>& lines) {
  std::vector<std::string> texts;
  for (const Line& line : lines) texts.push_back(TextOf(line));
  return texts;
}

std::vector<std::string> Wrap(std::string_view text, int columns) {
  return TextsOf(WrapCells(TextCells(text, CellStyle::kCommitted), columns));
}

TEST(TextCellsTest, ControlCharactersNeverReachTheTerminal) {
  EXPECT_EQ(TextOf(TextCells("a\x1B[2Jb\r\a\x7F\xC2\x9B", CellStyle::kCommitted)),
            "a\uFFFD[2Jb\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(TextOf(TextCells("a\tb", CellStyle::kCommitted)), "a    b");
}

TEST(TextCellsTest, CombiningCharacterSharesTheCellBeforeIt) {
  const std::vector<Cell> cells = TextCells("e\u0301x", CellStyle::kCommitted);
  ASSERT_THAT(cells, SizeIs(2));
  EXPECT_EQ(cells[0].text, "e\u0301");
  EXPECT_EQ(cells[0].columns, 1);
}

TEST(TextCellsTest, InvalidBytesAndUnfinishedEndGetDifferentGlyphs) {
  EXPECT_EQ(TextOf(TextCells("a\xFF"
                             "b\xE6\x9D",
                             CellStyle::kCommitted)),
            "a\uFFFDb\u2592");
}

TEST(WrapCellsTest, BreaksAfterTheLastSpaceThatFits) {
  EXPECT_THAT(Wrap("one two three", 9), ElementsAre("one two ", "three"));
  EXPECT_THAT(Wrap("one two", 7), ElementsAre("one two"));
  EXPECT_THAT(Wrap("one two", 3), ElementsAre("one", "two"));
}

TEST(WrapCellsTest, CutsWordsLongerThanALine) {
  EXPECT_THAT(Wrap("abcdefgh", 3), ElementsAre("abc", "def", "gh"));
}

TEST(WrapCellsTest, KeepsNewlinesAndEmptyLines) {
  EXPECT_THAT(Wrap("a\n\nb\n", 10), ElementsAre("a", "", "b", ""));
  EXPECT_THAT(Wrap("", 10), ElementsAre(""));
}

TEST(WrapCellsTest, WideCharacterMovesWholeToTheNextLine) {
  EXPECT_THAT(Wrap("a東京", 4), ElementsAre("a東", "京"));
  EXPECT_THAT(Wrap("東京", 2), ElementsAre("東", "京"));
}

TEST(WrapCellsTest, WidthOneShowsAPlaceholderForWideCharacters) {
  EXPECT_THAT(Wrap("a東b", 1), ElementsAre("a", "?", "b"));
}

TEST(WrapCellsTest, NoLineIsWiderThanAsked) {
  const std::string text =
      "The 東京の庭 garden, averyveryverylongword and e\u0301 🦊🦊🦊 foxes\tin it";
  for (int columns = 1; columns <= 30; ++columns) {
    std::vector<int> widths;
    for (const Line& line : WrapCells(TextCells(text, CellStyle::kCommitted), columns)) {
      widths.push_back(LineColumns(line));
    }
    EXPECT_THAT(widths, Each(Le(columns)));
  }
}

// Lines "0", "1", … of which one holds a freshly committed cell.
std::vector<Line> NumberedLines(int n, int fresh) {
  std::vector<Line> lines;
  for (int i = 0; i < n; ++i) {
    lines.push_back(
        TextCells(std::to_string(i), i == fresh ? CellStyle::kFresh : CellStyle::kCommitted));
  }
  return lines;
}

TEST(CutToWindowTest, WhatFitsIsLeftAlone) {
  EXPECT_THAT(CutToWindow(NumberedLines(5, 0), 5, 20), SizeIs(5));
}

TEST(CutToWindowTest, FollowsTheFreshLineAndTellsWhatIsHidden) {
  EXPECT_THAT(TextsOf(CutToWindow(NumberedLines(20, 10), 6, 20)),
              ElementsAre("… 7 lines above", "7", "8", "9", "10", "… 9 lines below"));
}

TEST(CutToWindowTest, EndsTouchTheWindowWithoutANote) {
  EXPECT_THAT(TextsOf(CutToWindow(NumberedLines(8, 0), 5, 20)),
              ElementsAre("0", "1", "2", "3", "… 4 lines below"));
  EXPECT_THAT(TextsOf(CutToWindow(NumberedLines(8, 7), 5, 20)),
              ElementsAre("… 4 lines above", "4", "5", "6", "7"));
}

TEST(CutToWindowTest, TinyWindowShowsOnlyText) {
  EXPECT_THAT(TextsOf(CutToWindow(NumberedLines(8, 3), 1, 20)), ElementsAre("3"));
  EXPECT_THAT(CutToWindow(NumberedLines(8, 3), 0, 20), SizeIs(1));
  EXPECT_THAT(CutToWindow(NumberedLines(8, 3), -1, 20), SizeIs(1));
}

TEST(CutToWindowTest, NotesAreCutToTheWidth) {
  EXPECT_EQ(TextOf(CutToWindow(NumberedLines(20, 19), 4, 5).front()), "… 17 ");
}

}  // namespace
}  // namespace sparsed::client
