// SPDX-License-Identifier: Apache-2.0
// A status with a google.rpc detail, as the server sends it.
#pragma once

#include <string>

#include <google/protobuf/message.h>
#include <google/rpc/status.pb.h>
#include <grpcpp/support/status.h>

namespace sparsed::testing {

inline grpc::Status WithDetail(grpc::StatusCode code, const std::string& message,
                               const google::protobuf::Message& detail) {
  google::rpc::Status rich;
  rich.set_code(code);
  rich.set_message(message);
  rich.add_details()->PackFrom(detail);
  return grpc::Status(code, message, rich.SerializeAsString());
}

}  // namespace sparsed::testing
