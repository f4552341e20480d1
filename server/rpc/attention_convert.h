// SPDX-License-Identifier: Apache-2.0
// Attention of a request: from proto to AttentionPlan and back.
//
//   ASSIGN_OR_RETURN(AttentionPlan plan,
//                    ResolveAttention(request.attention(), "sparsed", canvas_length));
//   *resolved.mutable_attention() = EchoAttention(plan);
//
// Pure functions. Adding a field is one line in attention_convert.cc's list.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

#include "engine/attention/plan.h"
#include "sparsed/v1/generation.pb.h"

namespace sparsed {

// The preset with the request's fields over it, checked for a canvas of so many tokens. Rules over
// preset "dense" make it sparse, from the first step on unless skip is set. INVALID_ARGUMENT names
// the field, also of one that the plan would not read, unless it has the preset's own value.
absl::StatusOr<AttentionPlan> ResolveAttention(const v1::Attention& asked,
                                               const std::string& default_preset,
                                               int32_t canvas_length);

// The preset, all rules and the fields that the plan reads. ResolveAttention accepts them and
// returns the same plan, given the same canvas.
v1::Attention EchoAttention(const AttentionPlan& plan);

}  // namespace sparsed
