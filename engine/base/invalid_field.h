// SPDX-License-Identifier: Apache-2.0
// InvalidField: an INVALID_ARGUMENT that carries the path of the field it is about.
//   return InvalidField("decoding.block_length", 48, "must divide gen_length 100");
// Message: "decoding.block_length is 48: must divide gen_length 100". The server turns the path
// into a google.rpc.BadRequest detail.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <absl/status/status.h>

#include "engine/base/concat.h"

namespace sparsed {

absl::Status InvalidFieldMessage(std::string_view field, std::string_view value,
                                 std::string_view limit);

template <class Value>
absl::Status InvalidField(std::string_view field, const Value& value, std::string_view limit) {
  return InvalidFieldMessage(field, Concat(value), limit);
}

// The path given to InvalidField, if the status came from there.
std::optional<std::string> InvalidFieldPath(const absl::Status& status);

}  // namespace sparsed
