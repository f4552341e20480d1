// SPDX-License-Identifier: Apache-2.0
// CatchAll: runs code that may throw in spite of our rules (allocation, a library) and returns a
// status, so that one bad request cannot end the process.
#pragma once

#include <exception>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace sparsed {

// `body` returns absl::Status.
template <class Body>
absl::Status CatchAll(Body body) {
  try {
    return body();
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("unexpected failure: ", error.what()));
  } catch (...) {
    return absl::InternalError("unexpected failure");
  }
}

}  // namespace sparsed
