// SPDX-License-Identifier: Apache-2.0
// Serve: the life of the process: bind, load, serve, drain.
//
//   return Serve(config, &LoadEngine, &stop);
//
// The ports are bound before the model loads, so that probes get an answer (NOT_SERVING) meanwhile.
#pragma once

#include <functional>
#include <memory>

#include <absl/status/statusor.h>

#include "engine/engine.h"
#include "server/config.h"
#include "server/stop_request.h"

namespace sparsed {

using EngineLoader =
    std::function<absl::StatusOr<std::unique_ptr<Engine>>(const EngineOptions& options)>;

// Blocks until `stop` is requested and what runs has ended. OK for every stop that was asked for;
// else why the server could not start.
absl::Status Serve(const ServerConfig& config, const EngineLoader& load_engine, StopRequest* stop);

}  // namespace sparsed
