// SPDX-License-Identifier: Apache-2.0
// ToGrpcStatus: an absl::Status as a client sees it, with google.rpc.Status in the binary trailer
// (grpc-status-details-bin) when there is more to tell than code and message:
//   InvalidField(...)      -> BadRequest.field_violations with the path
//   BusyError(...)         -> RetryInfo.retry_delay
#pragma once

#include <absl/status/status.h>
#include <grpcpp/support/status.h>

namespace sparsed {

grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace sparsed
