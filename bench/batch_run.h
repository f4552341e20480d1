// SPDX-License-Identifier: Apache-2.0
// RunBatch: many requests through one engine, up to max_rows of them in every step.
//
//   RETURN_IF_ERROR(RunBatch(engine, {.count = rows.size(), .max_rows = 8,
//                                     .request = [&](size_t i) { return MakeRequest(rows[i]); },
//                                     .done = [&](size_t i, const RowTally& tally) { ... },
//                                     .stop = [] { return interrupted; }}));
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "bench/row_tally.h"
#include "engine/engine.h"

namespace sparsed {

struct Batch {
  size_t count = 0;                                              // requests, by index
  int32_t max_rows = 1;                                          // at most the engine's
  std::function<absl::StatusOr<Request>(size_t index)> request;  // asked when there is room
  std::function<absl::Status(size_t index, const RowTally& tally)> done;
  std::function<bool()> stop;  // asked before every step; true: give up what is not done
};

// The first error of request, done, Admit or a step; what was running is cancelled then. CANCELLED:
// stop said so.
absl::Status RunBatch(Engine* engine, const Batch& batch);

}  // namespace sparsed
