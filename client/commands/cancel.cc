// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "client/commands/commands.h"
#include "client/json_output.h"

namespace sparsed::client {

int Run(Session& session, const CancelOptions& options) {
  v1::CancelRequest request;
  request.set_request_id(options.request_id);
  v1::CancelResponse response;
  const grpc::Status status =
      Call(session, &v1::GenerationService::Stub::Cancel, request, response);
  if (!status.ok()) return ReportFailure(session, status);
  if (session.options.json) {
    std::cout << JsonLine(response);
  } else if (response.cancelled()) {
    std::cout << "cancelled " << options.request_id << "\n";
  } else {
    std::cout << "no request " << options.request_id << " is queued or running\n";
  }
  return response.cancelled() ? kExitOk : kExitFailure;
}

}  // namespace sparsed::client
