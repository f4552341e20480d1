// SPDX-License-Identifier: Apache-2.0
// Row: one admitted request while it runs. Private to the engine; belongs to the step loop's
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/attention/mask_arena.h"
#include "engine/attention/pattern.h"
#include "engine/attention/resolve.h"
#include "engine/types.h"

namespace sparsed {

// A canvas that a row runs through the network. A request with guidance has two: its canvas, and
// the same with everything that was given (prompt and fixed tokens) blanked.
struct Lane {
  bool blanked = false;
  MaskHandle mask;  // empty while no step of the request is sparse
};

struct Row {
  RequestId id = 0;
  Request request;  // its canvas is the current one
  AttentionSchedule schedule;
  AttentionPattern pattern;
  std::vector<Lane> lanes;
  std::vector<uint8_t> given;  // [length] 1 = not open at the start
  int32_t step = 0;            // next step to run
  int32_t block_open = 0;      // open positions of the current block when its first step began
  double density = 1;          // of the newest mask, mean over lanes
  std::optional<double> retained_mass;

  // Token ids a lane feeds to the network.
  std::vector<int32_t> LaneTokens(const Lane& lane, int32_t mask_token) const {
    std::vector<int32_t> tokens = request.canvas.tokens;
    if (!lane.blanked) return tokens;
    for (size_t p = 0; p < tokens.size(); ++p) {
      if (given[p] != 0) tokens[p] = mask_token;
    }
    return tokens;
  }
};

}  // namespace sparsed
