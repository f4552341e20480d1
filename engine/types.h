// SPDX-License-Identifier: Apache-2.0
// The engine's vocabulary: what is asked of it (Request), what it says after a step (StepResult).
// Standard library and absl::Status only: no ATen, no gRPC.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "engine/attention/plan.h"
#include "engine/decode/policy.h"

namespace sparsed {

using RequestId = uint64_t;

// The token sequence a request denoises: [prompt | generation], one token id per position.
// A position is *open* while it is still masked; open positions hold the model's mask id. Openness
// is tracked by position: a prompt that happens to contain the mask id is not open there.
struct Canvas {
  std::vector<int32_t> tokens;  // [length]
  std::vector<uint8_t> open;    // [length] 1 = still masked
  int32_t prompt_length = 0;    // tokens before the generation part; 0 is allowed

  int32_t length() const { return static_cast<int32_t>(tokens.size()); }
  int32_t generation_length() const { return length() - prompt_length; }

  // [prompt | mask_token * generation_length], all of the generation part open.
  static Canvas FromPrompt(std::vector<int32_t> prompt, int32_t generation_length,
                           int32_t mask_token);
};

// Everything the engine needs to run one generation; every field is resolved, nothing is a default.
struct Request {
  Canvas canvas;
  DecodePolicy policy;
  AttentionPlan attention;
  bool want_provisional = false;  // report predictions for open positions after each step
};

// What attention a row runs in one step (numerics.md, "schedule").
enum class StepPhase {
  kDense,          // dense, no mask is kept
  kDenseAndBuild,  // dense, and this step's q, k decide the block mask of later steps
  kSparse,         // only the kept blocks of the mask are computed
  kRebuild,        // this step's q, k decide the mask, and only its kept blocks are computed
};
const char* StepPhaseName(StepPhase phase);  // "dense", "build", "sparse", "rebuild"

// Why the engine ran a request dense although its plan is sparse (AttentionPlan::guard).
enum class GuardReason {
  kNone,         // it did not
  kShortCanvas,  // even the fewest blocks the plan may keep would take longer
  kHighDensity,  // the mask that was built keeps too many blocks
};
const char* GuardReasonName(GuardReason reason);  // "none", "short_canvas", "high_density"

// What one head's mask keeps.
struct HeadSparsity {
  double density = 1;        // kept / all blocks
  double retained_mass = 1;  // attention mass on the kept blocks, mean over queries
};

enum class FinishReason {
  kLength,     // all denoising steps ran, or no position was open any more
  kEndOfText,  // an end token was committed and everything before it is committed too
};
const char* FinishReasonName(FinishReason reason);  // "length", "end_of_text"

struct TokenEdit {
  int32_t position = 0;  // absolute, 0 = first prompt token
  int32_t token = 0;
  float confidence = 0;  // softmax probability of `token`, temperature not applied
};

// One row's outcome of one denoising step.
struct StepResult {
  RequestId id = 0;
  // Not OK: this row failed (INTERNAL: NaN or Inf in its logits, or an error of the step). The
  // engine has released it; of the fields below only not_finite is set.
  absl::Status status;
  bool not_finite = false;  // the row failed because its logits contain NaN or Inf
  int32_t step = 0;         // 0-based index of the step that ran
  int32_t total_steps = 0;
  StepPhase phase = StepPhase::kDense;
  std::vector<TokenEdit> committed;     // ascending positions
  std::vector<TokenEdit> provisional;   // predictions for positions that stay open; if wanted
  double density = 1;                   // computed / all attention blocks of this step
  std::optional<double> retained_mass;  // attention mass the mask keeps; set from its build on
  double step_seconds = 0;              // wall time of the whole batch's step
  // Of the newest mask, [layers * heads], layer by layer; empty in steps that build none.
  std::vector<HeadSparsity> heads;
  GuardReason guard = GuardReason::kNone;  // why the request runs dense from now on
  double mask_build_seconds = 0;           // this row's scoring and selection, in steps that build
  int32_t batch_rows = 0;                  // rows that shared the step
  int64_t batch_tokens = 0;  // canvas tokens that shared the step; twice with guidance
  bool finished = false;     // the engine has released the row
  FinishReason finish_reason = FinishReason::kLength;
};

// What a request gets when it says nothing: generation_config.json over these values.
struct GenerationDefaults {
  int32_t gen_length = 128;
  int32_t steps = 128;        // at most gen_length
  int32_t block_length = 32;  // at most gen_length
  double temperature = 0;
};

// What a checkpoint is and what it allows.
struct ModelInfo {
  std::string name;    // last component of the model folder
  std::string family;  // "llada"
  int32_t layers = 0;
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t vocabulary_size = 0;
  int32_t max_length = 0;  // prompt + generation, in tokens
  int32_t mask_token = 0;
  std::vector<int32_t> end_tokens;  // from config.json and generation_config.json
  int64_t parameters = 0;
  int64_t weight_bytes = 0;  // as held in memory
  std::string dtype;         // computation dtype: "float32"
  std::string device;        // "cpu"
  GenerationDefaults generation;
  std::vector<std::string> ignored_tensors;  // in the weight files, but not part of the model
};

// A snapshot of what is in use. Any thread may ask for it.
struct EngineLoad {
  int32_t rows = 0;  // admitted, not yet released
  int32_t max_rows = 0;
  int64_t mask_bytes_used = 0;
  int64_t mask_bytes_budget = 0;
};

}  // namespace sparsed
