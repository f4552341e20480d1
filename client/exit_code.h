// SPDX-License-Identifier: Apache-2.0
// What sparsectl's exit code says; the list in --help is written from here.
#pragma once

namespace sparsed::client {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,     // the request failed, or the answer is "no" (health, cancel)
  kExitUsage = 2,       // bad command line or unreadable input
  kExitNoServer = 3,    // nothing answers at --server
  kExitRefused = 4,     // the server refused the request as invalid
  kExitBusy = 5,        // the server is full; try again later
  kExitTimeout = 6,     // --timeout passed
  kExitInterrupt = 130  // Ctrl-C
};

inline constexpr const char* kExitCodeHelp =
    "Exit codes: 0 done; 1 failed, not serving or nothing to cancel; 2 bad command line;\n"
    "  3 no server answers; 4 the server refused the request as invalid; 5 the server is busy;\n"
    "  6 timed out; 130 interrupted.";

}  // namespace sparsed::client
