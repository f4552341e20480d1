// SPDX-License-Identifier: Apache-2.0
// UTF-8 one character at a time, for text whose bytes arrive token by token, and as a whole.
//
//   for (size_t i = 0; i < bytes.size();) { Utf8Char c = FirstUtf8Char(bytes.substr(i)); ... i +=
//   c.size; }
//
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string_view>

#include <absl/status/status.h>

namespace sparsed::client {

struct Utf8Char {
  enum class Kind {
    kWhole,
    kInvalid,    // these bytes begin no character; show U+FFFD
    kIncomplete  // the bytes end inside a character that more bytes could complete
  };
  Kind kind;
  char32_t code_point;  // of kWhole
  size_t size;          // bytes it takes, at least 1
};

// The first character of `bytes`, which must not be empty. Overlong forms, surrogates and values
// above U+10FFFF are invalid; an invalid part is as long as the part that could have begun a
// character.
Utf8Char FirstUtf8Char(std::string_view bytes);

// INVALID_ARGUMENT if `text` is not UTF-8 from end to end, naming the byte where it ceases to be:
//   standard input is not UTF-8: byte 0xff at offset 3
absl::Status CheckUtf8(std::string_view text, std::string_view name);

// True for a byte that can only stand inside a character.
inline bool IsUtf8Continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

// Columns a terminal gives a character: 0 (combining, joiners), 1, or 2 (East Asian wide, emoji).
int CodePointColumns(char32_t code_point);

}  // namespace sparsed::client
