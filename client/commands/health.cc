// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include <absl/strings/str_cat.h>

#include "client/commands/commands.h"
#include "client/json_output.h"

namespace sparsed::client {

int Run(Session& session, const HealthOptions& options) {
  using Response = grpc::health::v1::HealthCheckResponse;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(options.service);
  Response response;
  const auto context = session.connection.NewContext();
  grpc::Status status = session.connection.health().Check(context.get(), request, &response);
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) {
    status = grpc::Status(
        grpc::StatusCode::NOT_FOUND,
        absl::StrCat("the server knows no service \"", options.service, "\" (--service)"));
  }
  if (!status.ok()) return ReportFailure(session, status);
  const bool serving = response.status() == Response::SERVING;
  if (session.options.json) {
    std::cout << JsonLine(response);
  } else {
    std::cout << (serving ? "serving\n" : "not serving\n");
  }
  return serving ? kExitOk : kExitFailure;
}

}  // namespace sparsed::client
