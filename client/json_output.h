// SPDX-License-Identifier: Apache-2.0
// The --json form of what sparsectl prints: protobuf's JSON mapping on one line, with the field
// names of the .proto files. So 64-bit numbers are strings and bytes are base64; fields at zero are
// shown.
//
// Pure functions; any thread.
#pragma once

#include <string>

#include <google/protobuf/message.h>
#include <grpcpp/support/status.h>

namespace sparsed::client {

// One line, ending with '\n'.
std::string JsonLine(const google::protobuf::Message& message);

// {"error":{"code":"INVALID_ARGUMENT","message":…,"details":[…]}}; details as far as they are
// known.
std::string JsonErrorLine(const grpc::Status& status);

}  // namespace sparsed::client
