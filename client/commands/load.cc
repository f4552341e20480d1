// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include <absl/strings/str_format.h>

#include "client/commands/commands.h"
#include "client/json_output.h"

namespace sparsed::client {
namespace {

void Print(const v1::GetLoadResponse& load) {
  constexpr double kMebibyte = 1 << 20;
  std::cout << absl::StreamFormat("running      %d of %d\n", load.running_rows(), load.max_rows())
            << absl::StreamFormat("queued       %d of %d\n", load.queued_requests(),
                                  load.max_queued_requests())
            << absl::StreamFormat("mask memory  %.1f of %.1f MiB\n",
                                  static_cast<double>(load.mask_bytes_used()) / kMebibyte,
                                  static_cast<double>(load.mask_bytes_budget()) / kMebibyte);
  if (load.draining()) std::cout << "draining: no new requests are taken\n";
}

}  // namespace

int Run(Session& session, const LoadOptions& /*options*/) {
  v1::GetLoadResponse load;
  const grpc::Status status =
      Call(session, &v1::GenerationService::Stub::GetLoad, v1::GetLoadRequest(), load);
  if (!status.ok()) return ReportFailure(session, status);
  if (session.options.json) {
    std::cout << JsonLine(load);
  } else {
    Print(load);
  }
  return kExitOk;
}

}  // namespace sparsed::client
