// SPDX-License-Identifier: Apache-2.0
// Options of `generate` and `chat` for the request's attention, in groups of the help.
//
//   AddAttentionOptions(command, request);  // --preset, --ratio, --grid, …
//
// Each is set in the request only when given, and judged by the server: it knows the rules. Both
// arguments must live until the command line is parsed.
#pragma once

#include <CLI/CLI.hpp>

#include "sparsed/v1/generation.pb.h"

namespace sparsed::client {

void AddAttentionOptions(CLI::App& command, v1::GenerateRequest& request);

}  // namespace sparsed::client
