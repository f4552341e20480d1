// SPDX-License-Identifier: Apache-2.0
// sparsectl: the command line client of sparsed.
#include <cstdlib>
#include <iostream>
#include <optional>
#include <variant>

#include "client/commands/commands.h"
#include "client/connection.h"
#include "client/interrupt.h"
#include "client/options.h"
#include "client/session.h"

namespace sparsed::client {
namespace {

constexpr double kQuickCallSeconds = 10;

// A generation takes as long as it takes; everything else answers at once or not at all.
std::optional<double> TimeoutOf(const Options& options) {
  if (options.global.timeout_seconds) return options.global.timeout_seconds;
  const bool generates = std::holds_alternative<GenerateOptions>(options.command) ||
                         std::holds_alternative<ChatOptions>(options.command);
  if (generates) return std::nullopt;
  return kQuickCallSeconds;
}

int Main(int argc, char** argv) {
  // Before gRPC starts its threads: they must inherit the blocked signals.
  Interrupt interrupt;
  const std::variant<Options, ParseExit> parsed = ParseOptions(argc, argv);
  if (const auto* exit = std::get_if<ParseExit>(&parsed)) {
    std::cout << exit->output;
    std::cerr << exit->error;
    return exit->exit_code;
  }
  Options options = std::get<Options>(parsed);
  if (const char* no_color = std::getenv("NO_COLOR"); no_color != nullptr && *no_color != '\0') {
    options.global.color = false;
  }
  Connection connection(options.global.server, TimeoutOf(options));
  Session session{options.global, connection, interrupt};
  return std::visit([&session](const auto& command) { return Run(session, command); },
                    options.command);
}

}  // namespace
}  // namespace sparsed::client

int main(int argc, char** argv) { return sparsed::client::Main(argc, argv); }
