// SPDX-License-Identifier: Apache-2.0
#include "server/retry_after.h"

#include <string>

#include <absl/strings/cord.h>
#include <absl/strings/numbers.h>
#include <absl/types/optional.h>

#include "engine/base/concat.h"

namespace sparsed {
namespace {
constexpr char kRetryPayload[] = "sparsed/retry_after_seconds";
}

absl::Status BusyError(std::string_view message, double retry_after_seconds) {
  absl::Status status = absl::ResourceExhaustedError(AbslView(message));
  status.SetPayload(kRetryPayload, absl::Cord(Concat(retry_after_seconds)));
  return status;
}

std::optional<double> RetryAfterSeconds(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kRetryPayload);
  double seconds = 0;
  if (!payload || !absl::SimpleAtod(std::string(*payload), &seconds)) return std::nullopt;
  return seconds;
}

}  // namespace sparsed
