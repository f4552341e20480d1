// SPDX-License-Identifier: Apache-2.0
// Runs one generation and shows it.
//
//   GenerationOutcome outcome = RunGeneration(session, options.generation);
//   return outcome.exit_code;
#pragma once

#include <string>

#include "client/session.h"
#include "sparsed/v1/generation.pb.h"

namespace sparsed::client {

struct GenerationOutcome {
  int exit_code;
  std::string text;  // of a generation that finished
};

// Blocks until the generation has finished, failed or was interrupted; failures are reported
// already. Ctrl-C cancels the call, which makes the server drop the request within one step.
// A save_file that cannot be opened is found out before the server is asked.
GenerationOutcome RunGeneration(Session& session, const GenerationSettings& settings);

}  // namespace sparsed::client
