// SPDX-License-Identifier: Apache-2.0
// What a running request tells its caller: started?, progress*, finished. Plain values.
// `finished` comes exactly once and last, whatever happens to the request.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include <absl/status/status.h>

#include "engine/types.h"

namespace sparsed {

// The request left the queue.
struct StartedEvent {
  int32_t prompt_tokens = 0;
  int32_t total_steps = 0;
  double queue_seconds = 0;  // from arrival
};

// One or more denoising steps.
struct ProgressEvent {
  int32_t step = 0;  // steps done so far, 1..total_steps
  int32_t total_steps = 0;
  StepPhase phase = StepPhase::kDense;  // of the last of these steps, as the fields after the edits
  std::vector<TokenEdit> committed;     // since the event before, ascending positions
  std::vector<TokenEdit> provisional;   // of the last step, ascending positions
  double density = 1;
  std::optional<double> retained_mass;
  double step_seconds = 0;
};

// Whether a step in this phase makes a mask.
inline bool BuildsMask(StepPhase phase) {
  return phase == StepPhase::kDenseAndBuild || phase == StepPhase::kRebuild;
}

inline constexpr std::array<StepPhase, 4> kStepPhases = {
    StepPhase::kDense, StepPhase::kDenseAndBuild, StepPhase::kSparse, StepPhase::kRebuild};

struct PhaseTime {
  int32_t steps = 0;
  double seconds = 0;
};

// A step's wall time is shared by all rows of its batch.
struct Timings {
  double queue_seconds = 0;  // arrival to admission; to the end, if never admitted
  double total_seconds = 0;  // arrival to the end
  std::optional<double> first_commit_seconds;        // arrival to the first committed token
  std::array<PhaseTime, kStepPhases.size()> phases;  // by StepPhase
  double mask_build_seconds = 0;

  PhaseTime& phase(StepPhase phase) { return phases[static_cast<size_t>(phase)]; }
  const PhaseTime& phase(StepPhase phase) const { return phases[static_cast<size_t>(phase)]; }
};

struct SparsitySummary {
  // Of the newest mask; unset, or empty, if none was built.
  std::optional<double> mask_density;  // kept / all blocks
  std::optional<double> retained_mass;
  std::vector<HeadSparsity> heads;         // [layers * heads], layer by layer
  double mean_density = 1;                 // computed / all blocks over all steps; 1 without a step
  int64_t mask_bytes = 0;                  // arena bytes held while running
  GuardReason guard = GuardReason::kNone;  // why it ran dense although its plan is sparse
};

struct Usage {
  int32_t prompt_tokens = 0;
  int32_t committed_tokens = 0;
  int32_t steps = 0;           // that ran
  int32_t forward_passes = 0;  // two per step with guidance
};

// The request is over and its row and mask are free.
struct FinishedEvent {
  // OK, CANCELLED (by the caller, or a reader that stalled), DEADLINE_EXCEEDED, INTERNAL (the row
  // failed), UNAVAILABLE (shutdown), or what Engine::Admit said.
  absl::Status status;
  FinishReason finish_reason = FinishReason::kLength;  // only meaningful if status is OK
  Canvas canvas;                                       // as far as it got; whole if status is OK
  Usage usage;
  Timings timings;
  SparsitySummary sparsity;
};

using Event = std::variant<StartedEvent, ProgressEvent, FinishedEvent>;

}  // namespace sparsed
