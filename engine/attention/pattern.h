// SPDX-License-Identifier: Apache-2.0
// AttentionPattern: the parts of a request's masks that depend on positions only, made once at
// admission: the prior's blocks and the order of a video's tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/attention/resolve.h"

namespace sparsed {

struct AttentionPattern {
  at::Tensor prior_words;    // [query_blocks * words] int32, one for all heads; undefined: no prior
  at::Tensor fractal_order;  // [1, tokens] int32; undefined: not reordered so
};

// Nothing for a request without masks. Throws what the operators throw.
AttentionPattern MakeAttentionPattern(const AttentionSchedule& schedule, at::Device device);

}  // namespace sparsed
