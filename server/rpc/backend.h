// SPDX-License-Identifier: Apache-2.0
// Backend: what the services work with once a model is loaded. Owns nothing; everything it points
// to outlives the gRPC server.
#pragma once

#include "engine/engine.h"
#include "server/admission.h"
#include "server/clock.h"
#include "server/metrics.h"
#include "server/rpc/live_calls.h"
#include "server/rpc/served_model.h"

namespace sparsed {

struct Backend {
  const Engine* engine = nullptr;
  const ServedModel* model = nullptr;
  Admission* admission = nullptr;
  Metrics* metrics = nullptr;
  const Clock* clock = nullptr;
  LiveCalls* live_calls = nullptr;
};

}  // namespace sparsed
