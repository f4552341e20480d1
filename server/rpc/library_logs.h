// SPDX-License-Identifier: Apache-2.0
// RouteLibraryLogs: what gRPC and protobuf would print to standard error becomes log lines of ours.
// Once, after StartLogging.
#pragma once

namespace sparsed {

void RouteLibraryLogs();

}  // namespace sparsed
