// SPDX-License-Identifier: Apache-2.0
// RetryAfter: a RESOURCE_EXHAUSTED that says when to come back. The RPC layer turns the seconds
// into google.rpc.RetryInfo.
//   return BusyError("queue is full: 64 of 64 requests wait", 2.5);
#pragma once

#include <optional>
#include <string_view>

#include <absl/status/status.h>

namespace sparsed {

absl::Status BusyError(std::string_view message, double retry_after_seconds);

// The seconds given to BusyError, if the status came from there.
std::optional<double> RetryAfterSeconds(const absl::Status& status);

}  // namespace sparsed
