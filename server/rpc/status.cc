// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/status.h"

#include <cmath>
#include <optional>
#include <string>

#include <google/rpc/error_details.pb.h>
#include <google/rpc/status.pb.h>

#include "engine/base/invalid_field.h"
#include "server/retry_after.h"

namespace sparsed {
namespace {

google::rpc::RetryInfo MakeRetryInfo(double seconds) {
  google::rpc::RetryInfo info;
  const double whole = std::floor(seconds);
  info.mutable_retry_delay()->set_seconds(static_cast<int64_t>(whole));
  info.mutable_retry_delay()->set_nanos(static_cast<int32_t>((seconds - whole) * 1e9));
  return info;
}

google::rpc::BadRequest MakeBadRequest(const std::string& path, const std::string& description) {
  google::rpc::BadRequest bad_request;
  google::rpc::BadRequest::FieldViolation* violation = bad_request.add_field_violations();
  violation->set_field(path);
  violation->set_description(description);
  return bad_request;
}

// gRPC's trailer carries messages up to 8 KiB; a template may refuse with its whole input.
std::string Shortened(std::string message) {
  constexpr size_t kLimit = 1024;
  if (message.size() <= kLimit) return message;
  size_t end = kLimit;
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xC0) == 0x80) --end;
  message.resize(end);
  return message + "...";
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // Both libraries number the codes as google.rpc.Code does.
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::string message = Shortened(std::string(status.message()));
  google::rpc::Status details;
  if (const std::optional<std::string> path = InvalidFieldPath(status)) {
    details.add_details()->PackFrom(MakeBadRequest(*path, message));
  }
  if (const std::optional<double> seconds = RetryAfterSeconds(status)) {
    details.add_details()->PackFrom(MakeRetryInfo(*seconds));
  }
  details.set_code(static_cast<int32_t>(code));
  details.set_message(message);
  return grpc::Status(code, message, details.SerializeAsString());
}

}  // namespace sparsed
