// SPDX-License-Identifier: Apache-2.0
// Concat: absl::StrCat that also takes std::string_view.
//   Concat(path, ": ", field, " is ", 3);  // path, field: std::string_view
// Debian builds Abseil for C++14, where absl::string_view is a type of its own that neither
// converts from std::string_view nor to it; AbslView makes one for other calls. No ownership.
#pragma once

#include <string>
#include <string_view>

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

namespace sparsed {

inline absl::string_view AbslView(std::string_view text) { return {text.data(), text.size()}; }

namespace internal {
inline absl::string_view ConcatPiece(std::string_view text) { return AbslView(text); }
inline absl::string_view ConcatPiece(const std::string& text) { return text; }
inline absl::string_view ConcatPiece(const char* text) { return text; }
template <class Value>
const Value& ConcatPiece(const Value& value) {
  return value;
}
}  // namespace internal

template <class... Pieces>
std::string Concat(const Pieces&... pieces) {
  return absl::StrCat(internal::ConcatPiece(pieces)...);
}

}  // namespace sparsed
