// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "engine/text/byte_level.h"
#include "engine/text/tokenizer.h"

namespace sparsed {
namespace {

// One Push per byte, then Flush.
std::string AssembleByteByByte(std::string_view bytes) {
  Utf8Assembler assembler;
  std::string text;
  for (const char& byte : bytes) text += assembler.Push({&byte, 1});
  return text + assembler.Flush();
}

std::string AssembleAtOnce(std::string_view bytes) {
  Utf8Assembler assembler;
  std::string text = assembler.Push(bytes);
  return text + assembler.Flush();
}

TEST(Utf8AssemblerTest, CharacterIsEmittedWithItsLastByte) {
  Utf8Assembler assembler;
  EXPECT_EQ(assembler.Push("a\xF0\x9F\x98"), "a");
  EXPECT_EQ(assembler.Push("\x80"
                           "b"),
            "\xF0\x9F\x98\x80"
            "b");
  EXPECT_EQ(assembler.Flush(), "");
}

TEST(Utf8AssemblerTest, UnfinishedCharacterIsOneReplacementAtFlush) {
  Utf8Assembler assembler;
  EXPECT_EQ(assembler.Push("\xF0\x9F\x98"), "");
  EXPECT_EQ(assembler.Flush(), "\uFFFD");
  EXPECT_EQ(assembler.Flush(), "");
}

TEST(Utf8AssemblerTest, InvalidPartsAreReplacedOneByOne) {
  const struct {
    std::string bytes, text;
  } cases[] = {
      {"\x80", "\uFFFD"},                                // continuation alone
      {"\xC0\xAF", "\uFFFD\uFFFD"},                      // overlong
      {"\xE0\x80\x80", "\uFFFD\uFFFD\uFFFD"},            // overlong
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},            // surrogate
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},  // above U+10FFFF
      {"\xF1\x80\x80\x41", "\uFFFD\x41"},                // cut short: one part
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "\uFFFD\uFFFD\uFFFD\uFFFD\x41"},
      {"\xFF\xFE", "\uFFFD\uFFFD"},
  };
  for (const auto& [bytes, text] : cases) {
    EXPECT_EQ(AssembleAtOnce(bytes), text);
    EXPECT_EQ(AssembleByteByByte(bytes), text);
  }
}

TEST(FindInvalidUtf8Test, NamesTheFirstByteOfThePart) {
  EXPECT_EQ(FindInvalidUtf8(""), std::nullopt);
  EXPECT_EQ(FindInvalidUtf8(std::string_view("a\0b", 3)), std::nullopt);
  EXPECT_EQ(FindInvalidUtf8("caf\u00E9 \U0001F600 \uFFFF \U0010FFFF"), std::nullopt);
  EXPECT_EQ(FindInvalidUtf8("ab\xFF"), 2u);
  EXPECT_EQ(FindInvalidUtf8("\u00E9\xE2\x82"), 2u);
  EXPECT_EQ(FindInvalidUtf8("\xED\xA0\x80"), 0u);
}

TEST(BytesOfPieceTest, EveryByteHasOneCharacter) {
  // The alphabet by its definition: printable bytes stand for themselves, the rest follow U+0100.
  int next = 0x100;
  for (int byte = 0; byte < 0x100; ++byte) {
    const bool printable =
        (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const int code = printable ? byte : next++;
    std::string piece;
    if (code >= 0x80) piece.push_back(static_cast<char>(0xC0 | (code >> 6)));
    piece.push_back(static_cast<char>(code < 0x80 ? code : 0x80 | (code & 0x3F)));
    EXPECT_EQ(BytesOfPiece(piece), std::string(1, static_cast<char>(byte))) << byte;
  }
}

TEST(BytesOfPieceTest, ForeignCharactersAreRefused) {
  EXPECT_EQ(BytesOfPiece("a b"), std::nullopt);     // the space byte is written U+0120
  EXPECT_EQ(BytesOfPiece("\u0144"), std::nullopt);  // first character after the alphabet
  EXPECT_EQ(BytesOfPiece("\u65E5"), std::nullopt);
  EXPECT_EQ(BytesOfPiece("\xC4"), std::nullopt);  // cut off
  EXPECT_EQ(BytesOfPiece("\u0120the"), " the");
}

}  // namespace
}  // namespace sparsed
