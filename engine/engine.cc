// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include <absl/container/flat_hash_map.h>
#include <absl/strings/str_cat.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include "engine/attention/cost_model.h"
#include "engine/attention/mask_arena.h"
#include "engine/attention/pattern.h"
#include "engine/attention/resolve.h"
#include "engine/base/invalid_field.h"
#include "engine/base/status_macros.h"
#include "engine/base/torch_guard.h"
#include "engine/decode/commit.h"
#include "engine/forward.h"
#include "engine/model/family.h"
#include "engine/row.h"

namespace sparsed {
namespace {

using SteadyClock = std::chrono::steady_clock;

double SecondsSince(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

absl::Status ValidateCanvas(const Canvas& canvas, const ModelInfo& model) {
  if (canvas.length() > model.max_length) {
    return InvalidField("decoding.gen_length", canvas.generation_length(),
                        absl::StrCat("with a prompt of ", canvas.prompt_length,
                                     " tokens exceeds the model's max_length ", model.max_length));
  }
  if (canvas.open.size() != canvas.tokens.size() || canvas.prompt_length < 0 ||
      canvas.prompt_length > canvas.length()) {
    return absl::InvalidArgumentError("canvas: open and prompt_length must fit its tokens");
  }
  for (const int32_t token : canvas.tokens) {
    if (token < 0 || token >= model.vocabulary_size) {
      return InvalidField("canvas.tokens", token,
                          absl::StrCat("must be in 0..", model.vocabulary_size - 1));
    }
  }
  if (CountOpen(canvas, 0, canvas.length()) == 0) {
    return absl::InvalidArgumentError("canvas: no position is open");
  }
  return absl::OkStatus();
}

class LocalEngine final : public Engine {
 public:
  LocalEngine(ModelInfo info, std::unique_ptr<DenoisingModel> model, const EngineOptions& options,
              at::Tensor mask_words, std::optional<AttentionCosts> costs)
      : info_(std::move(info)),
        model_(std::move(model)),
        max_rows_(options.max_rows),
        arena_(options.mask_budget_bytes),
        mask_words_(std::move(mask_words)),
        costs_(costs) {}

  const ModelInfo& model() const override { return info_; }

  EngineLoad load() const override {
    return {row_count_.load(), max_rows_, arena_.used_bytes(), arena_.budget_bytes()};
  }

  absl::Status Validate(const Request& request) const override {
    RETURN_IF_ERROR(ValidateCanvas(request.canvas, info_));
    RETURN_IF_ERROR(ValidatePolicy(request.policy, request.canvas));
    RETURN_IF_ERROR(ValidateAttentionPlan(request.attention, request.canvas.length()));
    if (MaskBytes(request) > arena_.budget_bytes()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the request's block masks need ", MaskBytes(request),
                       " bytes, the whole mask budget is ", arena_.budget_bytes(),
                       ": use larger blocks, a shorter canvas or a larger budget"));
    }
    return absl::OkStatus();
  }

  int64_t MaskBytes(const Request& request) const override {
    return Schedule(request).mask_bytes * LaneCount(request);
  }

  absl::StatusOr<RequestId> Admit(Request request) override;
  std::vector<StepResult> Step(absl::Span<const RequestId> ids) override;

  void Cancel(RequestId id) override {
    if (rows_.erase(id) > 0) row_count_.fetch_sub(1);
  }

 private:
  static int32_t LaneCount(const Request& request) { return request.policy.cfg_scale > 0 ? 2 : 1; }
  // Dense throughout if the guard knows beforehand that sparse steps would not be faster.
  AttentionSchedule Schedule(const Request& request) const;
  GuardReason Judge(const AttentionSchedule& schedule, double density) const {
    const bool guarded = costs_.has_value() && schedule.plan.guard && schedule.mask_bytes > 0;
    return guarded ? costs_->Judge(schedule, density) : GuardReason::kNone;
  }

  // Fills results[i] for every row; a batch that fails as a whole is tried again row by row, so
  // that only the row at fault fails.
  void StepRows(const std::vector<Row*>& rows, const std::vector<StepResult*>& results);
  // Sorts a row's predictions into what this step commits and what it only reports.
  void SplitPredictions(const Row& row, int32_t budget, const std::vector<TokenEdit>& predictions,
                        StepResult* result) const;
  // Takes over the masks that the step built; gives them up where the guard says so.
  void FinishBuild(const BatchForward& forward, size_t index, Row* row, StepResult* result) const;
  // Policies of one row, after the forward.
  absl::Status FinishRow(const BatchForward& forward, size_t index, Row* row, StepResult* result);

  const ModelInfo info_;
  const std::unique_ptr<DenoisingModel> model_;
  const int32_t max_rows_;
  MaskArena arena_;              // outlives rows_, whose masks give their bytes back to it
  const at::Tensor mask_words_;  // [budget / 4] int32
  const std::optional<AttentionCosts> costs_;
  absl::flat_hash_map<RequestId, std::unique_ptr<Row>> rows_;
  std::atomic<int32_t> row_count_{0};
  RequestId next_id_ = 1;
};

AttentionSchedule LocalEngine::Schedule(const Request& request) const {
  AttentionSchedule schedule =
      ResolveSchedule(request.attention, request.canvas, request.policy.steps, info_);
  const GuardReason reason = Judge(schedule, schedule.LeastDensity());
  if (reason != GuardReason::kNone) schedule.RunDense(reason);
  return schedule;
}

absl::StatusOr<RequestId> LocalEngine::Admit(Request request) {
  RETURN_IF_ERROR(Validate(request));
  if (row_count_.load() >= max_rows_) {
    return absl::ResourceExhaustedError(absl::StrCat("all ", max_rows_, " rows are taken"));
  }
  auto row = std::make_unique<Row>();
  row->schedule = Schedule(request);
  for (int32_t i = 0; i < LaneCount(request); ++i) {
    Lane lane;
    lane.blanked = i > 0;
    if (row->schedule.mask_bytes > 0) {
      ASSIGN_OR_RETURN(lane.mask, arena_.Reserve(row->schedule.mask_bytes));
    }
    row->lanes.push_back(std::move(lane));
  }
  RETURN_IF_ERROR(TorchGuard(
      [&] { row->pattern = MakeAttentionPattern(row->schedule, mask_words_.device()); }));
  row->given.reserve(request.canvas.open.size());
  for (const uint8_t open : request.canvas.open) row->given.push_back(open == 0 ? 1 : 0);
  row->request = std::move(request);
  row->id = next_id_++;
  const RequestId id = row->id;
  rows_[id] = std::move(row);
  row_count_.fetch_add(1);
  return id;
}

std::vector<StepResult> LocalEngine::Step(absl::Span<const RequestId> ids) {
  const c10::InferenceMode inference_mode;
  const SteadyClock::time_point begin = SteadyClock::now();
  std::vector<StepResult> results(ids.size());
  std::vector<Row*> rows;
  std::vector<StepResult*> row_results;
  for (size_t i = 0; i < ids.size(); ++i) {
    results[i].id = ids[i];
    const auto found = rows_.find(ids[i]);
    if (found == rows_.end()) {
      results[i].status = absl::NotFoundError(absl::StrCat("no admitted request ", ids[i]));
      continue;
    }
    rows.push_back(found->second.get());
    row_results.push_back(&results[i]);
  }
  if (!rows.empty()) StepRows(rows, row_results);
  int64_t tokens = 0;
  for (const Row* row : rows) {
    tokens += static_cast<int64_t>(row->lanes.size()) * row->request.canvas.length();
  }
  const double seconds = SecondsSince(begin);
  for (StepResult* result : row_results) {
    result->step_seconds = seconds;
    result->batch_rows = static_cast<int32_t>(rows.size());
    result->batch_tokens = tokens;
    if (!result->status.ok() || result->finished) Cancel(result->id);
  }
  return results;
}

void LocalEngine::StepRows(const std::vector<Row*>& rows, const std::vector<StepResult*>& results) {
  BatchForward forward(*model_, mask_words_, info_.mask_token);
  const absl::Status status = forward.Run(rows);
  if (!status.ok() && rows.size() > 1) {
    for (size_t i = 0; i < rows.size(); ++i) StepRows({rows[i]}, {results[i]});
    return;
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    results[i]->status = status.ok() ? FinishRow(forward, i, rows[i], results[i]) : status;
  }
}

void LocalEngine::SplitPredictions(const Row& row, int32_t budget,
                                   const std::vector<TokenEdit>& predictions,
                                   StepResult* result) const {
  const std::vector<size_t> chosen =
      ChooseCommits(row.request.policy, row.step, budget, predictions);
  for (size_t i = 0, next = 0; i < predictions.size(); ++i) {
    const bool commits = next < chosen.size() && chosen[next] == i;
    if (commits) ++next;
    // A committed mask id says "still open": it is no edit a reader could show.
    if (predictions[i].token == info_.mask_token) continue;
    if (commits) {
      result->committed.push_back(predictions[i]);
    } else if (row.request.want_provisional) {
      result->provisional.push_back(predictions[i]);
    }
  }
}

void LocalEngine::FinishBuild(const BatchForward& forward, size_t index, Row* row,
                              StepResult* result) const {
  MaskBuild build = forward.FinishBuild(index);
  row->density = build.density();
  row->retained_mass = std::min(build.retained_mass(), 1.0);  // fp32 sums may pass 1 by a rounding
  result->mask_build_seconds = build.seconds;
  result->heads = std::move(build.heads);
  const GuardReason reason = Judge(row->schedule, row->density);
  if (reason == GuardReason::kNone) return;
  row->schedule.RunDense(reason);
  for (Lane& lane : row->lanes) lane.mask = MaskHandle();
}

absl::Status LocalEngine::FinishRow(const BatchForward& forward, size_t index, Row* row,
                                    StepResult* result) {
  Canvas& canvas = row->request.canvas;
  const DecodePolicy& policy = row->request.policy;
  result->step = row->step;
  result->total_steps = policy.steps;
  result->phase = row->schedule.PhaseOf(row->step);
  const bool rebuilds = result->phase == StepPhase::kRebuild;
  if (rebuilds || result->phase == StepPhase::kDenseAndBuild) {
    FinishBuild(forward, index, row, result);
  }
  result->density = rebuilds || result->phase == StepPhase::kSparse ? row->density : 1.0;
  result->retained_mass = row->retained_mass;
  result->guard = row->schedule.guard;

  const StepPlace place = PlaceOf(policy, canvas, row->step);
  if (place.step_in_block == 0) {
    row->block_open = CountOpen(canvas, place.block_begin, place.block_end);
  }
  const int32_t budget = CommitBudget(place, row->block_open);
  Predictions predictions;
  if (budget > 0 || row->request.want_provisional) {
    ASSIGN_OR_RETURN(predictions, forward.Predict(index, CandidatePositions(canvas, place)));
  }
  if (!predictions.finite) {
    result->not_finite = true;
    return absl::InternalError(
        absl::StrCat("the logits of step ", row->step, " contain NaN or Inf"));
  }
  SplitPredictions(*row, budget, predictions.edits, result);
  CommitEdits(result->committed, info_.mask_token, &canvas);
  const std::vector<TokenEdit> closed = CloseAfterEnd(policy, &canvas);
  result->committed.insert(result->committed.end(), closed.begin(), closed.end());
  std::sort(result->committed.begin(), result->committed.end(),
            [](const TokenEdit& a, const TokenEdit& b) { return a.position < b.position; });
  std::erase_if(result->provisional, [&canvas](const TokenEdit& edit) {
    return canvas.open[static_cast<size_t>(edit.position)] == 0;
  });

  ++row->step;
  const bool none_open = CountOpen(canvas, 0, canvas.length()) == 0;
  result->finished = none_open || row->step == policy.steps;
  const bool ended = none_open && HasEndToken(policy, canvas);
  result->finish_reason = ended ? FinishReason::kEndOfText : FinishReason::kLength;
  return absl::OkStatus();
}

absl::StatusOr<const Family*> FindFamily(const std::string& model_type) {
  for (const Family& family : Families()) {
    if (family.model_type == model_type) return &family;
  }
  return absl::UnimplementedError(
      absl::StrCat("model family \"", model_type, "\" is not built in"));
}

absl::StatusOr<at::Device> FindDevice(const std::string& name) {
  if (name == "cpu") return at::Device(at::kCPU);
  if (name != "cuda") return InvalidField("device", name, "must be cpu or cuda");
  if (at::hasCUDA()) return at::Device(at::kCUDA, 0);
  return absl::FailedPreconditionError(
      "device cuda: no GPU was found, or LibTorch's CUDA libraries are not loaded");
}

ModelInfo MakeModelInfo(const ModelConfig& config, const DenoisingModel& model,
                        const std::string& dir, at::Device device) {
  ModelInfo info;
  info.name = ModelName(dir);
  info.family = config.family;
  info.layers = config.layers;
  info.heads = config.heads;
  info.kv_heads = config.kv_heads;
  info.head_dim = config.head_dim;
  info.vocabulary_size = config.vocabulary_size;
  info.max_length = config.max_length;
  info.mask_token = config.mask_token;
  info.end_tokens = config.end_tokens;
  info.parameters = model.parameters();
  info.weight_bytes = model.parameters() * 4;
  info.dtype = "float32";
  info.device = device.str();
  info.ignored_tensors = model.ignored_tensors();
  info.generation = config.generation;
  return info;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> LoadEngine(const EngineOptions& options) {
  if (options.mask_budget_bytes < 0) {
    return InvalidField("mask_budget_bytes", options.mask_budget_bytes, "must not be negative");
  }
  if (options.max_rows < 1) return InvalidField("max_rows", options.max_rows, "must be at least 1");
  if (options.threads < 0) return InvalidField("threads", options.threads, "must not be negative");
  ASSIGN_OR_RETURN(const at::Device device, FindDevice(options.device));
  ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(options.model_dir));
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(options.model_dir));
  ASSIGN_OR_RETURN(const Family* family, FindFamily(config.family));
  ASSIGN_OR_RETURN(std::unique_ptr<DenoisingModel> model,
                   family->load(config, checkpoint, {device, options.on_progress}));
  at::Tensor mask_words;
  RETURN_IF_ERROR(TorchGuard([&] {
    if (options.threads > 0) at::set_num_threads(options.threads);
    mask_words = at::zeros({options.mask_budget_bytes / 4}, at::dtype(at::kInt).device(device));
  }));
  ModelInfo info = MakeModelInfo(config, *model, options.model_dir, device);
  std::optional<AttentionCosts> costs;
  if (options.guard) {
    ASSIGN_OR_RETURN(costs, MeasureAttentionCosts(info, mask_words.device()));
  }
  return std::make_unique<LocalEngine>(std::move(info), std::move(model), options,
                                       std::move(mask_words), costs);
}

}  // namespace sparsed
