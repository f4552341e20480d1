// SPDX-License-Identifier: Apache-2.0
#include "client/utf8.h"

#include <algorithm>
#include <iterator>

#include <absl/strings/str_format.h>

namespace sparsed::client {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};

// Unicode 15 blocks whose characters combine with the one before or have no glyph. Coarse on
// purpose: a rare script off by one column only shifts a line break.
constexpr Range kZeroWidth[] = {
    {0x0300, 0x036F}, {0x0483, 0x0489}, {0x0591, 0x05BD}, {0x0610, 0x061A},   {0x064B, 0x065F},
    {0x06D6, 0x06DC}, {0x093C, 0x093C}, {0x0941, 0x0948}, {0x094D, 0x094D},   {0x0E31, 0x0E31},
    {0x0E34, 0x0E3A}, {0x0E47, 0x0E4E}, {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF},   {0x200B, 0x200F},
    {0x202A, 0x202E}, {0x2060, 0x2064}, {0x20D0, 0x20FF}, {0x302A, 0x302D},   {0x3099, 0x309A},
    {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0xFEFF, 0xFEFF}, {0x1F3FB, 0x1F3FF}, {0xE0001, 0xE01EF},
};

// East Asian Wide and Fullwidth, and emoji that are wide by default.
constexpr Range kWide[] = {
    {0x1100, 0x115F},   {0x231A, 0x231B},   {0x2329, 0x232A},   {0x23E9, 0x23EC},
    {0x23F0, 0x23F0},   {0x23F3, 0x23F3},   {0x25FD, 0x25FE},   {0x2614, 0x2615},
    {0x2648, 0x2653},   {0x26A1, 0x26A1},   {0x26BD, 0x26BE},   {0x26C4, 0x26C5},
    {0x26D4, 0x26D4},   {0x26EA, 0x26EA},   {0x26F2, 0x26F5},   {0x26FD, 0x26FD},
    {0x2705, 0x2705},   {0x270A, 0x270B},   {0x2728, 0x2728},   {0x274C, 0x274E},
    {0x2753, 0x2757},   {0x2795, 0x2797},   {0x27B0, 0x27BF},   {0x2B1B, 0x2B1C},
    {0x2B50, 0x2B55},   {0x2E80, 0x303E},   {0x3041, 0x33FF},   {0x3400, 0x4DBF},
    {0x4E00, 0x9FFF},   {0xA000, 0xA4CF},   {0xA960, 0xA97F},   {0xAC00, 0xD7A3},
    {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},
    {0x16FE0, 0x18CFF}, {0x1B000, 0x1B2FF}, {0x1F004, 0x1F004}, {0x1F0CF, 0x1F0CF},
    {0x1F18E, 0x1F18E}, {0x1F191, 0x1F19A}, {0x1F200, 0x1F320}, {0x1F32D, 0x1F393},
    {0x1F3A0, 0x1F3F0}, {0x1F3F4, 0x1F3F4}, {0x1F3F8, 0x1F4FD}, {0x1F4FF, 0x1F53D},
    {0x1F54B, 0x1F567}, {0x1F57A, 0x1F57A}, {0x1F595, 0x1F596}, {0x1F5A4, 0x1F5A4},
    {0x1F5FB, 0x1F64F}, {0x1F680, 0x1F6C5}, {0x1F6CC, 0x1F6D7}, {0x1F6EB, 0x1F6FC},
    {0x1F7E0, 0x1F7F0}, {0x1F90C, 0x1FAFF}, {0x20000, 0x3FFFD},
};

template <size_t N>
bool Contains(const Range (&ranges)[N], char32_t code_point) {
  const Range* found =
      std::upper_bound(std::begin(ranges), std::end(ranges), code_point,
                       [](char32_t value, const Range& range) { return value < range.first; });
  return found != std::begin(ranges) && code_point <= std::prev(found)->last;
}

// What may follow a lead byte: number of continuation bytes, and the range of the first of them
// (Unicode 15, table 3-7), which is where overlong forms and surrogates are told apart.
struct Lead {
  int continuation = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
};

Lead LeadOf(unsigned char byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {.continuation = 1};
  if (byte == 0xE0) return {.continuation = 2, .low = 0xA0};
  if (byte == 0xED) return {.continuation = 2, .high = 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {.continuation = 2};
  if (byte == 0xF0) return {.continuation = 3, .low = 0x90};
  if (byte >= 0xF1 && byte <= 0xF3) return {.continuation = 3};
  if (byte == 0xF4) return {.continuation = 3, .high = 0x8F};
  return {};
}

}  // namespace

Utf8Char FirstUtf8Char(std::string_view bytes) {
  const auto first = static_cast<unsigned char>(bytes[0]);
  if (first < 0x80) return {Utf8Char::Kind::kWhole, first, 1};
  Lead lead = LeadOf(first);
  if (lead.continuation == 0) return {Utf8Char::Kind::kInvalid, 0, 1};
  char32_t code_point = first & (0x3Fu >> lead.continuation);
  for (size_t i = 1; i <= static_cast<size_t>(lead.continuation); ++i) {
    if (i == bytes.size()) return {Utf8Char::Kind::kIncomplete, 0, i};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (byte < lead.low || byte > lead.high) return {Utf8Char::Kind::kInvalid, 0, i};
    code_point = (code_point << 6) | (byte & 0x3Fu);
    lead.low = 0x80;
    lead.high = 0xBF;
  }
  return {Utf8Char::Kind::kWhole, code_point, static_cast<size_t>(lead.continuation) + 1};
}

absl::Status CheckUtf8(std::string_view text, std::string_view name) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = FirstUtf8Char(text.substr(i));
    if (c.kind != Utf8Char::Kind::kWhole) {
      return absl::InvalidArgumentError(absl::StrFormat("%s is not UTF-8: byte 0x%02x at offset %d",
                                                        name, static_cast<unsigned char>(text[i]),
                                                        i));
    }
    i += c.size;
  }
  return absl::OkStatus();
}

int CodePointColumns(char32_t code_point) {
  if (code_point < 0x0300) return 1;
  if (Contains(kZeroWidth, code_point)) return 0;
  return Contains(kWide, code_point) ? 2 : 1;
}

}  // namespace sparsed::client
