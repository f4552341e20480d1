// SPDX-License-Identifier: Apache-2.0
// One function for each command of sparsectl; each prints its result and returns the exit code.
#pragma once

#include "client/exit_code.h"
#include "client/options.h"
#include "client/session.h"

namespace sparsed::client {

int Run(Session& session, const GenerateOptions& options);
int Run(Session& session, const ChatOptions& options);
int Run(Session& session, const ModelOptions& options);
int Run(Session& session, const LoadOptions& options);
int Run(Session& session, const HealthOptions& options);
int Run(Session& session, const TokenizeOptions& options);
int Run(Session& session, const CancelOptions& options);

}  // namespace sparsed::client
