// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include "engine/text/tokenizer.h"

namespace sparsed {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// What stands at the start of some bytes: a whole character, the beginning of one that the bytes
// end too early for, or a maximal invalid part (Unicode 15, table 3-7 and section 3.9).
enum class Utf8Part { kCharacter, kUnfinished, kInvalid };

struct Utf8Step {
  Utf8Part part;
  size_t size;
};

// Length the lead byte announces, 0 if it cannot lead; and the bounds of the byte after it, which
// exclude overlong forms, surrogates and what lies above U+10FFFF.
struct LeadByte {
  size_t size;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
};

LeadByte ReadLead(unsigned char lead) {
  if (lead < 0x80) return {1};
  if (lead < 0xC2) return {0};
  if (lead < 0xE0) return {2};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

Utf8Step ReadUtf8(std::string_view bytes) {
  LeadByte lead = ReadLead(static_cast<unsigned char>(bytes[0]));
  if (lead.size == 0) return {Utf8Part::kInvalid, 1};
  for (size_t i = 1; i < lead.size; ++i) {
    if (i == bytes.size()) return {Utf8Part::kUnfinished, i};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (byte < lead.low || byte > lead.high) return {Utf8Part::kInvalid, i};
    lead.low = 0x80;
    lead.high = 0xBF;
  }
  return {Utf8Part::kCharacter, lead.size};
}

}  // namespace

std::string Utf8Assembler::Push(std::string_view bytes) {
  pending_.append(bytes);
  std::string_view rest = pending_;
  std::string text;
  while (!rest.empty()) {
    const Utf8Step step = ReadUtf8(rest);
    if (step.part == Utf8Part::kUnfinished) break;
    text.append(step.part == Utf8Part::kCharacter ? rest.substr(0, step.size) : kReplacement);
    rest.remove_prefix(step.size);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return text;
}

std::string Utf8Assembler::Flush() {
  // Push leaves nothing but one unfinished character.
  std::string text(pending_.empty() ? std::string_view() : kReplacement);
  pending_.clear();
  return text;
}

std::optional<size_t> FindInvalidUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = ReadUtf8(text.substr(i));
    if (step.part != Utf8Part::kCharacter) return i;
    i += step.size;
  }
  return std::nullopt;
}

}  // namespace sparsed
