// SPDX-License-Identifier: Apache-2.0
// Which positions a step looks at and which of them it commits: LLaDA's semi-autoregressive
// decoding (arXiv 2502.09992, section 2.4; sparsed_reference.md 2.1). Pure functions of policy,
// canvas and step.
#pragma once

#include <cstdint>
#include <vector>

#include <absl/status/status.h>

#include "engine/types.h"

namespace sparsed {

// INVALID_ARGUMENT on "decoding.…" or "canvas": step count, block length, temperature,
// seed-independent.
absl::Status ValidatePolicy(const DecodePolicy& policy, const Canvas& canvas);

// Where a step stands: its block, and its index among the block's steps.
struct StepPlace {
  int32_t block_begin = 0;  // absolute positions [block_begin, block_end)
  int32_t block_end = 0;
  int32_t step_in_block = 0;
  int32_t steps_in_block = 0;
};
StepPlace PlaceOf(const DecodePolicy& policy, const Canvas& canvas, int32_t step);

// Open positions within [begin, end).
int32_t CountOpen(const Canvas& canvas, int32_t begin, int32_t end);

// Positions that compete in this step, ascending: all open ones before the end of the block. That
// includes open positions of the prompt, which use up the first block's budget, as in the
// reference.
std::vector<int32_t> CandidatePositions(const Canvas& canvas, const StepPlace& place);

// How many positions the step commits. block_open: open positions of the block when its first step
// began. The block_open % steps_in_block first steps commit one more than the others.
int32_t CommitBudget(const StepPlace& place, int32_t block_open);

// Indices into `predictions` (one per candidate) of the `budget` best, ascending. Order: see
// Remasking.
std::vector<size_t> ChooseCommits(const DecodePolicy& policy, int32_t step, int32_t budget,
                                  const std::vector<TokenEdit>& predictions);

// Writes the edits into the canvas. A prediction that is the mask id itself leaves its position
// open: its share of the budget is spent (as in the reference).
void CommitEdits(const std::vector<TokenEdit>& edits, int32_t mask_token, Canvas* canvas);

// Whether an end token of the policy stands in the generation part.
bool HasEndToken(const DecodePolicy& policy, const Canvas& canvas);

// Early stop: closes every open position after the first committed end token with that token.
// Returns the closed positions as edits of confidence 1.
std::vector<TokenEdit> CloseAfterEnd(const DecodePolicy& policy, Canvas* canvas);

}  // namespace sparsed
