// SPDX-License-Identifier: Apache-2.0
// sparsed: the server process. Exit codes: 0 stopped as asked, 1 could not start, 2 bad flags.
#include <cstdio>

#include "engine/engine.h"
#include "server/config.h"
#include "server/log.h"
#include "server/rpc/library_logs.h"
#include "server/serve.h"
#include "server/signal_watcher.h"
#include "server/stop_request.h"

int main(int argc, char** argv) {
  const sparsed::ParsedConfig parsed = sparsed::ParseConfig(argc, argv);
  if (const auto* exit = std::get_if<sparsed::ConfigExit>(&parsed)) {
    std::fprintf(exit->code == 0 ? stdout : stderr, "%s\n", exit->message.c_str());
    return exit->code;
  }
  const auto& config = std::get<sparsed::ServerConfig>(parsed);
  sparsed::StartLogging(config.log_level, config.log_format);
  sparsed::RouteLibraryLogs();
  sparsed::StopRequest stop;
  const sparsed::SignalWatcher signals(&stop);
  const absl::Status status = sparsed::Serve(config, &sparsed::LoadEngine, &stop);
  if (status.ok()) return 0;
  sparsed::Log(sparsed::LogLevel::kError, "failed", {{"error", std::string(status.message())}});
  return 1;
}
