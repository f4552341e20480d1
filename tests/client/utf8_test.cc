// SPDX-License-Identifier: Apache-2.0
#include "client/utf8.h"

#include <gtest/gtest.h>

namespace sparsed::client {
namespace {

using Kind = Utf8Char::Kind;

void ExpectChar(std::string_view bytes, Kind kind, char32_t code_point, size_t size) {
  const Utf8Char c = FirstUtf8Char(bytes);
  EXPECT_EQ(c.kind, kind);
  EXPECT_EQ(c.code_point, code_point);
  EXPECT_EQ(c.size, size);
}

TEST(Utf8Test, ReadsCharactersOfEveryLength) {
  ExpectChar("a", Kind::kWhole, 'a', 1);
  ExpectChar("é!", Kind::kWhole, 0xE9, 2);
  ExpectChar("東京", Kind::kWhole, 0x6771, 3);
  ExpectChar("🦊", Kind::kWhole, 0x1F98A, 4);
  ExpectChar("\xF4\x8F\xBF\xBF", Kind::kWhole, 0x10FFFF, 4);
}

TEST(Utf8Test, CharacterCutShortIsIncomplete) {
  ExpectChar("\xC3", Kind::kIncomplete, 0, 1);
  ExpectChar("\xE6\x9D", Kind::kIncomplete, 0, 2);
  ExpectChar("\xF0\x9F\xA6", Kind::kIncomplete, 0, 3);
}

TEST(Utf8Test, InvalidPartIsAsLongAsWhatCouldHaveBegunACharacter) {
  ExpectChar("\x80", Kind::kInvalid, 0, 1);          // continuation first
  ExpectChar("\xC0\x80", Kind::kInvalid, 0, 1);      // overlong
  ExpectChar("\xE0\x80\x80", Kind::kInvalid, 0, 1);  // overlong
  ExpectChar("\xED\xA0\x80", Kind::kInvalid, 0, 1);  // surrogate
  ExpectChar("\xF4\x90\x80\x80", Kind::kInvalid, 0, 1);
  ExpectChar(
      "\xE6\x9D"
      "a",
      Kind::kInvalid, 0, 2);
  ExpectChar("\xFF", Kind::kInvalid, 0, 1);
}

TEST(Utf8Test, TextThatIsNotUtf8IsRefusedWithTheOffset) {
  EXPECT_TRUE(CheckUtf8("", "the text").ok());
  EXPECT_TRUE(CheckUtf8("aé東🦊", "the text").ok());
  EXPECT_EQ(CheckUtf8("é\xFF", "the text").message(),
            "the text is not UTF-8: byte 0xff at offset 2");
  EXPECT_EQ(CheckUtf8("ab\xE6\x9D", "the text").message(),
            "the text is not UTF-8: byte 0xe6 at offset 2");
  EXPECT_EQ(CheckUtf8("\xC0\x80", "the text").code(), absl::StatusCode::kInvalidArgument);
}

TEST(Utf8Test, KnowsNarrowWideAndCombining) {
  EXPECT_EQ(CodePointColumns('a'), 1);
  EXPECT_EQ(CodePointColumns(0x2014), 1);  // em dash
  EXPECT_EQ(CodePointColumns(0x2591), 1);  // the open glyph
  EXPECT_EQ(CodePointColumns(0x6771), 2);
  EXPECT_EQ(CodePointColumns(0xAC00), 2);
  EXPECT_EQ(CodePointColumns(0x1F98A), 2);
  EXPECT_EQ(CodePointColumns(0x0301), 0);
  EXPECT_EQ(CodePointColumns(0x200D), 0);
}

}  // namespace
}  // namespace sparsed::client
