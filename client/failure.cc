// SPDX-License-Identifier: Apache-2.0
#include "client/failure.h"

#include <absl/status/status.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <google/rpc/error_details.pb.h>

namespace sparsed::client {
namespace {

Failure NoServer(const std::string& server) {
  return {kExitNoServer,
          absl::StrCat("no server answers at ", server,
                       "; start one with: sparsed --model models/demo-llada-17m\n",
                       "(another address: --server HOST:PORT or the variable SPARSED_SERVER)\n")};
}

std::string DescribeRefusal(const grpc::Status& status) {
  std::string violations;
  const google::rpc::Status rich = RichStatus(status);
  for (const google::protobuf::Any& detail : rich.details()) {
    google::rpc::BadRequest bad_request;
    if (!detail.UnpackTo(&bad_request)) continue;
    for (const auto& violation : bad_request.field_violations()) {
      // Our server's description starts with the field; do not say it twice.
      const bool named = absl::StartsWith(violation.description(), violation.field());
      absl::StrAppend(&violations, "  ", named ? "" : absl::StrCat(violation.field(), ": "),
                      violation.description(), "\n");
    }
  }
  if (violations.empty()) return absl::StrCat("the server refused: ", status.error_message(), "\n");
  return absl::StrCat("the server refused the request:\n", violations);
}

std::string DescribeBusy(const grpc::Status& status) {
  std::string text = absl::StrCat("the server is busy: ", status.error_message(), "\n");
  const google::rpc::Status rich = RichStatus(status);
  for (const google::protobuf::Any& detail : rich.details()) {
    google::rpc::RetryInfo retry;
    if (!detail.UnpackTo(&retry)) continue;
    const double seconds =
        static_cast<double>(retry.retry_delay().seconds()) + retry.retry_delay().nanos() * 1e-9;
    absl::StrAppendFormat(&text, "try again in %.3g s\n", seconds);
  }
  return text;
}

std::string DescribeUnimplemented(const std::string& message, const std::string& server) {
  // An empty message is gRPC's for an unknown method, "Received http2 …" for a web server's answer.
  if (message.empty() || absl::StartsWith(message, "Received http2 header")) {
    return absl::StrCat("what answers at ", server, " does not offer this call; is it sparsed?\n");
  }
  return absl::StrCat("the server cannot do this: ", message, "\n");
}

}  // namespace

Failure DescribeFailure(const grpc::Status& status, const std::string& server,
                        bool server_reached) {
  const std::string& message = status.error_message();
  const bool answered = server_reached || IsServersWord(status);
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      if (!answered) return NoServer(server);
      return {kExitFailure, absl::StrCat("the server is not available: ", message, "\n")};
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::OUT_OF_RANGE:
    case grpc::StatusCode::ALREADY_EXISTS:
      return {kExitRefused, DescribeRefusal(status)};
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return {kExitBusy, DescribeBusy(status)};
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      if (!answered) {
        return {kExitNoServer,
                absl::StrCat("no server answered at ", server, " within --timeout\n")};
      }
      return {kExitTimeout, "timed out (see --timeout); the server was told to stop\n"};
    case grpc::StatusCode::CANCELLED:
      return {kExitFailure, "the request was cancelled on the server\n"};
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::NOT_FOUND:
      return {kExitFailure, absl::StrCat(message, "\n")};
    case grpc::StatusCode::UNIMPLEMENTED:
      return {kExitFailure, DescribeUnimplemented(message, server)};
    default:
      return {kExitFailure, absl::StrCat("the server failed (", CodeName(status.error_code()),
                                         "): ", message, "\n")};
  }
}

bool IsServersWord(const grpc::Status& status) { return !status.error_details().empty(); }

google::rpc::Status RichStatus(const grpc::Status& status) {
  google::rpc::Status rich;
  if (!status.error_details().empty() && rich.ParseFromString(status.error_details())) return rich;
  rich.Clear();
  rich.set_code(status.error_code());
  rich.set_message(status.error_message());
  return rich;
}

std::string CodeName(grpc::StatusCode code) {
  // gRPC and Abseil number the canonical codes alike.
  return absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
}

}  // namespace sparsed::client
