// SPDX-License-Identifier: Apache-2.0
// What a failed call means to the person at the terminal.
//
//   const Failure failure = DescribeFailure(status, connection.server(), connection.reached());
//   std::cerr << failure.text;  return failure.exit_code;
//
// Pure functions; any thread.
#pragma once

#include <string>

#include <google/rpc/status.pb.h>
#include <grpcpp/support/status.h>

#include "client/exit_code.h"

namespace sparsed::client {

struct Failure {
  ExitCode exit_code;
  // What went wrong and what to do next; lines end with '\n'.
  std::string text;
};

// Reads field violations (google.rpc.BadRequest) and the time to retry (google.rpc.RetryInfo) from
// the status details. server_reached: Connection::reached() after the call, which need not hold any
// more for a server that ended the call as its last.
Failure DescribeFailure(const grpc::Status& status, const std::string& server, bool server_reached);

// True: the server itself ended the call with this error. sparsed sends details with every error;
// what gRPC makes up when the connection breaks has none.
bool IsServersWord(const grpc::Status& status);

// The status with its details unpacked, for --json; without details, just code and message.
google::rpc::Status RichStatus(const grpc::Status& status);

// "INVALID_ARGUMENT" and so on.
std::string CodeName(grpc::StatusCode code);

}  // namespace sparsed::client
