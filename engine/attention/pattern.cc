// SPDX-License-Identifier: Apache-2.0
#include "engine/attention/pattern.h"

#include <ATen/ATen.h>

#include "kernels/prior.h"
#include "kernels/reorder.h"

namespace sparsed {
namespace {

constexpr int64_t kTileEdge = 8;  // a video's blocks are 8x8 tokens of one frame

at::Tensor PriorWords(const AttentionSchedule& schedule) {
  const AttentionPlan& plan = schedule.plan;
  switch (plan.prior) {
    case PriorRule::kNone:
      return {};
    case PriorRule::kSinkWindow:
      return kernels::SinkWindowMask(schedule.blocks, plan.sink_blocks, plan.window_blocks);
    case PriorRule::kSta:
      return kernels::StaMask({plan.grid.t, plan.grid.h / kTileEdge, plan.grid.w / kTileEdge},
                              {plan.sta_window.t, plan.sta_window.h, plan.sta_window.w});
  }
  return {};
}

}  // namespace

AttentionPattern MakeAttentionPattern(const AttentionSchedule& schedule, at::Device device) {
  AttentionPattern pattern;
  if (schedule.mask_bytes == 0) return pattern;
  const at::Tensor prior = PriorWords(schedule);
  if (prior.defined()) pattern.prior_words = prior.to(device);
  if (schedule.plan.reorder == ReorderRule::kFractal) {
    const Extent3& grid = schedule.plan.grid;
    pattern.fractal_order = kernels::FractalOrder(grid.t, grid.h, grid.w).to(device);
  }
  return pattern;
}

}  // namespace sparsed
