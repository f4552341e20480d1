// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/library_logs.h"

#include <string>

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include "server/log.h"

namespace sparsed {
namespace {

thread_local int reporting_scopes = 0;

void LogGrpc(gpr_log_func_args* args) {
  const bool error = args->severity == GPR_LOG_SEVERITY_ERROR && reporting_scopes == 0;
  Log(error ? LogLevel::kWarning : LogLevel::kDebug, "grpc", {{"message", args->message}});
}

// Debug: protobuf complains here about requests that their sender is told about anyway.
void LogProtobuf(google::protobuf::LogLevel, const char*, int, const std::string& message) {
  Log(LogLevel::kDebug, "protobuf", {{"message", message}});
}

}  // namespace

void RouteLibraryLogs() {
  gpr_set_log_function(&LogGrpc);
  google::protobuf::SetLogHandler(&LogProtobuf);
}

ErrorsAreReported::ErrorsAreReported() { ++reporting_scopes; }
ErrorsAreReported::~ErrorsAreReported() { --reporting_scopes; }

}  // namespace sparsed
