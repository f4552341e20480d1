// SPDX-License-Identifier: Apache-2.0
// AttentionCosts: how long dense and sparse attention take on this machine, measured once while the
// engine loads, so that a request runs sparse only where that is faster (AttentionPlan::guard).
//
//   ASSIGN_OR_RETURN(AttentionCosts costs, MeasureAttentionCosts(info, device));
//   const GuardReason reason = costs.Judge(schedule, schedule.LeastDensity());
//
// Times are linear in tokens and in query-key pairs. They differ a little from start to start, so a
// request near the break-even point may run dense after one start and sparse after another; within
// a process the same request always gets the same judgement. Only the ratios of the times matter.
#pragma once

#include <array>

#include <absl/status/statusor.h>

#include <ATen/core/Tensor.h>

#include "engine/attention/resolve.h"

namespace sparsed {

// Seconds of one layer, over the heads that were measured.
struct AttentionCosts {
  double token = 0;                        // per token, whatever the mask
  double dense_pair = 0;                   // per pair of a query and a key, dense
  std::array<double, 4> sparse_pair = {};  // per computed pair, by block size 32, 64, 128, 256
  double score_token = 0;                  // per token: scoring from block statistics
  double order_token = 0;                  // per token: sorting by norm
  double move_token = 0;                   // per token: to the blocks' order and back

  double DenseSeconds(int64_t tokens) const;
  // Of an average sparse step, its share of rebuilding included.
  double SparseSeconds(const AttentionSchedule& schedule, double density) const;

  // kNone if sparse steps of this density are faster than dense ones.
  GuardReason Judge(const AttentionSchedule& schedule, double density) const;
};

// Takes a few tenths of a second. Statuses of TorchGuard.
absl::StatusOr<AttentionCosts> MeasureAttentionCosts(const ModelInfo& model, at::Device device);

}  // namespace sparsed
