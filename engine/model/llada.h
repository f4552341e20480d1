// SPDX-License-Identifier: Apache-2.0
// The LLaDA family (arXiv 2502.09992): a bidirectional Llama-style transformer with OLMo's tensor
// names.
//   x += attn_out(attention(rope(q), rope(k), v)), q, k, v from attn_norm(x)
//   x += ff_out(silu(ff_proj(h)) * up_proj(h)),    h = ff_norm(x)
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "engine/model/family.h"

namespace sparsed {

// Errors name tensor and file. CANCELLED: progress said stop.
absl::StatusOr<std::unique_ptr<DenoisingModel>> LoadLlada(const ModelConfig& config,
                                                          const Checkpoint& checkpoint,
                                                          const WeightTarget& target);

}  // namespace sparsed
