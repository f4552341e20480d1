// SPDX-License-Identifier: Apache-2.0
// Bytes <-> messages for handlers that take gRPC's raw buffers.
// Raw, because gRPC answers a request that it cannot parse (a string that is not UTF-8, cut-off
// bytes) with an empty UNIMPLEMENTED; ParseMessage gives the field and the byte instead.
#pragma once

#include <string>

#include <absl/status/status.h>
#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

namespace sparsed {

// INVALID_ARGUMENT: the first string field that is not UTF-8, by path; or bytes that are no
// message.
absl::Status ParseMessage(const grpc::ByteBuffer& buffer, google::protobuf::Message* message);
absl::Status ParseMessageBytes(const std::string& bytes, google::protobuf::Message* message);

grpc::ByteBuffer SerializeMessage(const google::protobuf::Message& message);

}  // namespace sparsed
