// SPDX-License-Identifier: Apache-2.0
// What a client finds in the details of a grpc::Status.
#pragma once

#include <optional>
#include <string>

#include <google/rpc/error_details.pb.h>
#include <google/rpc/status.pb.h>
#include <grpcpp/support/status.h>

namespace sparsed::testing {

template <class Detail>
std::optional<Detail> FindDetail(const grpc::Status& status) {
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return std::nullopt;
  for (const google::protobuf::Any& any : details.details()) {
    Detail detail;
    if (any.UnpackTo(&detail)) return detail;
  }
  return std::nullopt;
}

// The path of the one field that BadRequest names; empty if there is none.
inline std::string BadField(const grpc::Status& status) {
  const auto bad_request = FindDetail<google::rpc::BadRequest>(status);
  if (!bad_request || bad_request->field_violations_size() != 1) return "";
  return bad_request->field_violations(0).field();
}

}  // namespace sparsed::testing
