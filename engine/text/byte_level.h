// SPDX-License-Identifier: Apache-2.0
// The byte-level alphabet of GPT-2's BPE: each of the 256 bytes is written as one printable
// character (printable Latin-1 as itself, the other 68 bytes as U+0100 … U+0143 in order).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sparsed {

// The bytes a piece such as "Ġthe" stands for (" the"); nothing if a character is not of the
// alphabet.
std::optional<std::string> BytesOfPiece(std::string_view piece);

}  // namespace sparsed
