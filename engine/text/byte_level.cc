// SPDX-License-Identifier: Apache-2.0
#include "engine/text/byte_level.h"

#include <array>
#include <cstdint>

namespace sparsed {
namespace {

constexpr size_t kAlphabetEnd = 0x144;
constexpr int16_t kNoByte = -1;

constexpr bool WrittenAsItself(size_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

// Code point -> byte.
constexpr std::array<int16_t, kAlphabetEnd> MakeAlphabet() {
  std::array<int16_t, kAlphabetEnd> alphabet{};
  alphabet.fill(kNoByte);
  size_t next = 0x100;
  for (size_t byte = 0; byte < 0x100; ++byte) {
    alphabet[WrittenAsItself(byte) ? byte : next++] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr std::array<int16_t, kAlphabetEnd> kAlphabet = MakeAlphabet();

}  // namespace

std::optional<std::string> BytesOfPiece(std::string_view piece) {
  std::string bytes;
  bytes.reserve(piece.size());
  for (size_t i = 0; i < piece.size(); ++i) {
    const auto lead = static_cast<unsigned char>(piece[i]);
    size_t code = lead;
    if (lead >= 0x80) {  // the alphabet's other characters have two UTF-8 bytes
      if (lead < 0xC2 || lead >= 0xE0 || i + 1 == piece.size()) return std::nullopt;
      const auto trail = static_cast<unsigned char>(piece[++i]);
      code = static_cast<size_t>(lead & 0x1F) << 6 | (trail & 0x3F);
    }
    if (code >= kAlphabetEnd || kAlphabet[code] == kNoByte) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet[code]));
  }
  return bytes;
}

}  // namespace sparsed
