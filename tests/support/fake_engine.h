// SPDX-License-Identifier: Apache-2.0
// FakeEngine: an Engine without a model, for tests of what drives one.
//
//   FakeEngine engine({.max_rows = 2});
//   engine.on_step = [&](absl::Span<const RequestId>) { clock.Advance(kStep); };
//
// A row commits generation_length / steps positions a step (the first steps one more), in a
// scattered order, token FakeEngine::TokenAt(position); with want_provisional it predicts all that
// stay open. Rows with a sparse plan hold options.row_mask_bytes and go dense, build, sparse by
// plan.skip; with refresh_every = n they go dense, then rebuild in every n-th step. Threads as
// Engine; the counters may be read from any.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/types/span.h>

#include "engine/base/mutex.h"
#include "engine/engine.h"

namespace sparsed::testing {

struct FakeEngineOptions {
  int32_t max_rows = 4;
  int64_t mask_budget_bytes = 4000;
  int64_t row_mask_bytes = 1000;
  double step_seconds = 0.02;  // what a step says it took
  int32_t layers = 2;
  int32_t heads = 2;
};

class FakeEngine final : public Engine {
 public:
  static constexpr int32_t kMaskToken = 7;
  static constexpr double kSparseDensity = 0.25;
  static constexpr double kRetainedMass = 0.9;
  static constexpr double kBuildSeconds = 0.003;
  // Around kSparseDensity; all are exact.
  static HeadSparsity HeadAt(int32_t layer, int32_t head) {
    return {.density = 0.125F + 0.25F * static_cast<float>(layer % 2) +
                       (head % 2 == 0 ? -0.0625F : 0.0625F),
            .retained_mass = 0.875F + 0.0625F * static_cast<float>(layer % 2)};
  }
  static int32_t TokenAt(int32_t position) { return 1000 + position; }

  explicit FakeEngine(const FakeEngineOptions& options = {}) : options_(options) {
    model_.name = "fake";
    model_.mask_token = kMaskToken;
    model_.max_length = 4096;
    model_.layers = options.layers;
    model_.heads = options.heads;
  }

  // Called at the start of every step, on the thread that drives the engine. May block.
  std::function<void(absl::Span<const RequestId>)> on_step;
  // An error fails this row in this step; INTERNAL stands for NaN or Inf in its logits.
  std::function<absl::Status(const Request&, int32_t step)> row_status;
  // An error is what Admit says. Asked before the row and byte limits.
  std::function<absl::Status(const Request&)> admit_status;
  // What becomes of sparse requests that allow the guard: kShortCanvas runs them dense from the
  // first step on, kHighDensity after their first mask.
  GuardReason guard = GuardReason::kNone;
  // The first steps of a request commit nothing.
  int32_t silent_steps = 0;
  // Step loses the last result: a broken engine.
  bool lose_last_result = false;

  const ModelInfo& model() const override { return model_; }

  EngineLoad load() const override {
    MutexLock lock(&mutex_);
    return load_;
  }

  absl::Status Validate(const Request&) const override { return absl::OkStatus(); }

  int64_t MaskBytes(const Request& request) const override {
    if (!request.attention.sparse() || GuardOf(request) == GuardReason::kShortCanvas) return 0;
    return options_.row_mask_bytes;
  }

  absl::StatusOr<RequestId> Admit(Request request) override {
    CheckThread();
    if (admit_status) {
      absl::Status status = admit_status(request);
      if (!status.ok()) return status;
    }
    const int64_t bytes = MaskBytes(request);
    MutexLock lock(&mutex_);
    if (load_.rows >= load_.max_rows || load_.mask_bytes_used + bytes > load_.mask_bytes_budget) {
      return absl::ResourceExhaustedError("no row or mask bytes are free");
    }
    ++load_.rows;
    load_.mask_bytes_used += bytes;
    const RequestId id = next_id_++;
    rows_[id] = {std::move(request)};
    return id;
  }

  std::vector<StepResult> Step(absl::Span<const RequestId> ids) override {
    CheckThread();
    if (on_step) on_step(ids);
    batches_.emplace_back(ids.begin(), ids.end());
    std::vector<StepResult> results;
    for (RequestId id : ids) {
      results.push_back(StepRow(id));
      results.back().batch_rows = static_cast<int32_t>(ids.size());
    }
    int64_t tokens = 0;
    for (RequestId id : ids) tokens += rows_.count(id) ? rows_.at(id).request.canvas.length() : 0;
    for (StepResult& result : results) {
      result.batch_tokens = tokens;
      if (result.finished || !result.status.ok()) Release(result.id);
    }
    if (lose_last_result) results.pop_back();
    return results;
  }

  void Cancel(RequestId id) override {
    CheckThread();
    Release(id);
  }

  // The ids of every step so far. Only when nothing drives the engine.
  const std::vector<std::vector<RequestId>>& batches() const { return batches_; }
  // Calls from a second thread; must be 0.
  int foreign_calls() const { return foreign_calls_; }

 private:
  struct Row {
    Request request;
    int32_t step = 0;
    bool mask_refused = false;  // by the guard
  };

  // Counts calls from any thread but the first that called.
  void CheckThread() {
    MutexLock lock(&mutex_);
    if (driver_ == std::thread::id()) driver_ = std::this_thread::get_id();
    if (driver_ != std::this_thread::get_id()) ++foreign_calls_;
  }

  StepResult StepRow(RequestId id) {
    StepResult result;
    result.id = id;
    const auto found = rows_.find(id);
    if (found == rows_.end()) {
      result.status = absl::NotFoundError("no such row");
      return result;
    }
    Row& row = found->second;
    if (row_status) result.status = row_status(row.request, row.step);
    result.not_finite = absl::IsInternal(result.status);
    if (!result.status.ok()) return result;
    result.step = row.step;
    result.total_steps = row.request.policy.steps;
    result.step_seconds = options_.step_seconds;
    FillAttention(&row, &result);
    if (row.step >= silent_steps) Commit(&row, &result);
    if (row.request.want_provisional) Predict(row, &result);
    ++row.step;
    result.finished = row.step == result.total_steps;
    return result;
  }

  GuardReason GuardOf(const Request& request) const {
    return request.attention.sparse() && request.attention.guard ? guard : GuardReason::kNone;
  }

  static StepPhase PhaseOf(const Row& row) {
    const AttentionPlan& plan = row.request.attention;
    const auto skipped = static_cast<int32_t>(std::ceil(plan.skip * row.request.policy.steps));
    if (plan.refresh_every > 0) {
      if (row.step < skipped) return StepPhase::kDense;
      return (row.step - skipped) % plan.refresh_every == 0 ? StepPhase::kRebuild
                                                            : StepPhase::kSparse;
    }
    const int32_t dense_steps = std::max(1, skipped);
    if (row.step + 1 == dense_steps) return StepPhase::kDenseAndBuild;
    return row.step < dense_steps ? StepPhase::kDense : StepPhase::kSparse;
  }

  void FillAttention(Row* row, StepResult* result) const {
    if (!row->request.attention.sparse()) return;
    const GuardReason reason = GuardOf(row->request);
    if (reason == GuardReason::kShortCanvas || row->mask_refused) {
      result->guard = reason;
      return;
    }
    result->phase = PhaseOf(*row);
    if (result->phase == StepPhase::kDense) return;
    result->retained_mass = kRetainedMass;
    if (result->phase != StepPhase::kDenseAndBuild) result->density = kSparseDensity;
    if (result->phase == StepPhase::kSparse) return;
    result->mask_build_seconds = kBuildSeconds;
    for (int32_t layer = 0; layer < options_.layers; ++layer) {
      for (int32_t head = 0; head < options_.heads; ++head) {
        result->heads.push_back(HeadAt(layer, head));
      }
    }
    row->mask_refused = reason == GuardReason::kHighDensity;
    result->guard = reason;
  }

  static void Commit(Row* row, StepResult* result) {
    Canvas& canvas = row->request.canvas;
    std::vector<int32_t> open;
    for (int32_t i = 0; i < canvas.length(); ++i) {
      if (canvas.open[static_cast<size_t>(i)]) open.push_back(i);
    }
    // Scattered: by a fixed hash of the position.
    std::sort(open.begin(), open.end(), [](int32_t a, int32_t b) {
      return std::pair(a * 37 % 101, a) < std::pair(b * 37 % 101, b);
    });
    const int32_t steps_left = row->request.policy.steps - row->step;
    const auto count =
        (open.size() + static_cast<size_t>(steps_left) - 1) / static_cast<size_t>(steps_left);
    open.resize(count);
    std::sort(open.begin(), open.end());
    for (int32_t position : open) {
      canvas.tokens[static_cast<size_t>(position)] = TokenAt(position);
      canvas.open[static_cast<size_t>(position)] = 0;
      result->committed.push_back({position, TokenAt(position), 0.75F});
    }
  }

  static void Predict(const Row& row, StepResult* result) {
    const Canvas& canvas = row.request.canvas;
    for (int32_t i = 0; i < canvas.length(); ++i) {
      if (canvas.open[static_cast<size_t>(i)]) {
        result->provisional.push_back({i, 5000 + row.step, 0.25F});
      }
    }
  }

  void Release(RequestId id) {
    const auto found = rows_.find(id);
    if (found == rows_.end()) return;
    const int64_t bytes = MaskBytes(found->second.request);
    rows_.erase(found);
    MutexLock lock(&mutex_);
    --load_.rows;
    load_.mask_bytes_used -= bytes;
  }

  const FakeEngineOptions options_;
  ModelInfo model_;
  std::map<RequestId, Row> rows_;
  std::vector<std::vector<RequestId>> batches_;
  RequestId next_id_ = 1;
  mutable Mutex mutex_;
  EngineLoad load_ ABSL_GUARDED_BY(mutex_) = {.rows = 0,
                                              .max_rows = options_.max_rows,
                                              .mask_bytes_used = 0,
                                              .mask_bytes_budget = options_.mask_budget_bytes};
  std::thread::id driver_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int> foreign_calls_ = 0;
};

}  // namespace sparsed::testing
