// SPDX-License-Identifier: Apache-2.0
// Session: what every command works with, and how it calls the server and reports.
//
//   v1::GetLoadResponse response;
//   const grpc::Status status = Call(session, &Stub::GetLoad, {}, response);
//   if (!status.ok()) return ReportFailure(session, status);
#pragma once

#include <string>

#include <absl/status/statusor.h>
#include <grpcpp/grpcpp.h>

#include "client/connection.h"
#include "client/interrupt.h"
#include "client/options.h"

namespace sparsed::client {

struct Session {
  const GlobalOptions& options;
  Connection& connection;
  Interrupt& interrupt;
};

// Prints the failure (with --json also as a line on standard output); returns the exit code.
int ReportFailure(const Session& session, const grpc::Status& status);

// The same for input that cannot be used.
int ReportBadInput(const absl::Status& status);

// Says so; returns the exit code.
int ReportInterrupted();

// The text of the source without the newline that ends it. INVALID_ARGUMENT when there is none to
// be had (standard input is a terminal), it is too long or not UTF-8, NOT_FOUND for a file that
// cannot be read.
absl::StatusOr<std::string> ReadText(const TextSource& source, const std::string& what);

// A unary call of the generation service that Ctrl-C cancels. `interrupted` tells whether it did.
template <class Request, class Response>
grpc::Status Call(Session& session,
                  grpc::Status (v1::GenerationService::Stub::*method)(grpc::ClientContext*,
                                                                      const Request&, Response*),
                  const Request& request, Response& response, bool* interrupted = nullptr) {
  const auto context = session.connection.NewContext();
  const Interrupt::Scope scope(session.interrupt, [&context] { context->TryCancel(); });
  const grpc::Status status =
      (session.connection.generation().*method)(context.get(), request, &response);
  if (interrupted != nullptr) *interrupted = scope.raised();
  return status;
}

}  // namespace sparsed::client
