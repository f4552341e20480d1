// SPDX-License-Identifier: Apache-2.0
// JSON objects from files that may be broken or hostile.
//
//   ASSIGN_OR_RETURN(nlohmann::json config, ReadJsonObject(path, {.bytes = 1 << 20}));
//
// Stricter than JSON: bounded size, depth and number of values, no name twice in an object, UTF-8
// only. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

namespace sparsed {

struct JsonLimits {
  size_t bytes = 0;          // of the file
  size_t depth = 32;         // of nested objects and arrays
  size_t values = 1u << 20;  // in all: bounds the memory of the parsed document
};

// `source` (a path) starts every message. INVALID_ARGUMENT: not one JSON object within the limits;
// names the place, and the field before it.
absl::StatusOr<nlohmann::json> ParseJsonObject(std::string_view text, std::string_view source,
                                               const JsonLimits& limits);

// Also the errors of InputFile.
absl::StatusOr<nlohmann::json> ReadJsonObject(const std::string& path, const JsonLimits& limits);

// Text of unknown origin for a message: printable, in one line, at most about 160 bytes.
std::string Excerpt(std::string_view text);

}  // namespace sparsed
