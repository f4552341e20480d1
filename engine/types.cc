// SPDX-License-Identifier: Apache-2.0
#include "engine/types.h"

namespace sparsed {

Canvas Canvas::FromPrompt(std::vector<int32_t> prompt, int32_t generation_length,
                          int32_t mask_token) {
  Canvas canvas;
  canvas.prompt_length = static_cast<int32_t>(prompt.size());
  const size_t length = prompt.size() + static_cast<size_t>(generation_length);
  canvas.tokens = std::move(prompt);
  canvas.tokens.resize(length, mask_token);
  canvas.open.assign(length, 0);
  for (size_t i = static_cast<size_t>(canvas.prompt_length); i < length; ++i) canvas.open[i] = 1;
  return canvas;
}

const char* StepPhaseName(StepPhase phase) {
  switch (phase) {
    case StepPhase::kDense:
      return "dense";
    case StepPhase::kDenseAndBuild:
      return "build";
    case StepPhase::kSparse:
      return "sparse";
    case StepPhase::kRebuild:
      return "rebuild";
  }
  return "unknown";
}

const char* GuardReasonName(GuardReason reason) {
  switch (reason) {
    case GuardReason::kNone:
      return "none";
    case GuardReason::kShortCanvas:
      return "short_canvas";
    case GuardReason::kHighDensity:
      return "high_density";
  }
  return "unknown";
}

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength:
      return "length";
    case FinishReason::kEndOfText:
      return "end_of_text";
  }
  return "unknown";
}

}  // namespace sparsed
