// SPDX-License-Identifier: Apache-2.0
// RouteLibraryLogs: what gRPC and protobuf would print to standard error becomes log lines of ours.
// Once, after StartLogging.
//
// ErrorsAreReported: while one lives, gRPC's errors on this thread are debug lines, because the
// caller reports the failure itself.
//   const ErrorsAreReported scope;
//   if (!Bind()) return absl::UnavailableError(...);
#pragma once

namespace sparsed {

void RouteLibraryLogs();

class ErrorsAreReported {
 public:
  ErrorsAreReported();
  ~ErrorsAreReported();
  ErrorsAreReported(const ErrorsAreReported&) = delete;
  ErrorsAreReported& operator=(const ErrorsAreReported&) = delete;
};

}  // namespace sparsed
