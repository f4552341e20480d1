// SPDX-License-Identifier: Apache-2.0
// ToGrpcStatus: an absl::Status as a client sees it, with google.rpc.Status in the binary trailer
// (grpc-status-details-bin):
//   InvalidField(...)      -> BadRequest.field_violations with the path
//   BusyError(...)         -> RetryInfo.retry_delay
//   any other              -> code and message again: by this a client tells an error of the
//                             server from one that gRPC made up for a broken connection
#pragma once

#include <absl/status/status.h>
#include <grpcpp/support/status.h>

namespace sparsed {

grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace sparsed
