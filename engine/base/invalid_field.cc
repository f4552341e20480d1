// SPDX-License-Identifier: Apache-2.0
#include "engine/base/invalid_field.h"

#include <absl/strings/cord.h>
#include <absl/types/optional.h>

#include "engine/base/concat.h"

namespace sparsed {
namespace {
constexpr char kFieldPayload[] = "sparsed/field";
}

absl::Status InvalidFieldMessage(std::string_view field, std::string_view value,
                                 std::string_view limit) {
  absl::Status status = absl::InvalidArgumentError(Concat(field, " is ", value, ": ", limit));
  status.SetPayload(kFieldPayload, absl::Cord(std::string(field)));
  return status;
}

std::optional<std::string> InvalidFieldPath(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kFieldPayload);
  if (!payload) return std::nullopt;
  return std::string(*payload);
}

}  // namespace sparsed
