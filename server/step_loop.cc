// SPDX-License-Identifier: Apache-2.0
#include "server/step_loop.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <absl/strings/str_cat.h>

namespace sparsed {
namespace {

const char* Preset(const RequestRecord& row) { return row.job().request.attention.preset.c_str(); }

absl::Status ShutdownError() { return absl::UnavailableError("the server is shutting down"); }

absl::Status RowError(const absl::Status& status) {
  return absl::InternalError(absl::StrCat("the request failed in a step: ", status.message()));
}

// What the engine said about `row`, or an error if it said nothing: a row that stays silent would
// otherwise run for ever.
StepResult ResultFor(const RequestRecord& row, size_t index, std::vector<StepResult>* results) {
  if (index < results->size() && (*results)[index].id == row.engine_id()) {
    return std::move((*results)[index]);
  }
  StepResult missing;
  missing.status = absl::InternalError("the engine gave no result");
  return missing;
}

}  // namespace

StepLoop::StepLoop(const StepLoopOptions& options, Engine* engine, Admission* admission,
                   Metrics* metrics, const Clock* clock)
    : options_(options), engine_(engine), admission_(admission), metrics_(metrics), clock_(clock) {
  metrics_->mask_bytes_budget.Set(static_cast<double>(engine_->load().mask_bytes_budget));
}

StepLoop::~StepLoop() {
  Stop();
  if (thread_.joinable()) thread_.join();
}

void StepLoop::Start() {
  {
    MutexLock lock(&mutex_);
    if (std::exchange(started_, true)) return;
  }
  thread_ = std::thread([this] { Run(); });
}

bool StepLoop::Drain(Duration limit) {
  {
    MutexLock lock(&mutex_);
    drain_until_ = clock_->Now() + limit;
  }
  admission_->Drain();
  AwaitEnd();
  MutexLock lock(&mutex_);
  return !cut_short_;
}

void StepLoop::Stop() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  admission_->Stop();
  AwaitEnd();
}

void StepLoop::AwaitEnd() {
  bool run_here = false;
  {
    MutexLock lock(&mutex_);
    run_here = !std::exchange(started_, true);
  }
  if (run_here) Run();
  MutexLock lock(&mutex_);
  while (!finished_) ended_.Wait(&mutex_);
}

void StepLoop::Run() {
  for (Next next = Decide(true); next != Next::kEnd;) {
    if (next == Next::kWait) {
      std::optional<TimePoint> until;
      {
        MutexLock lock(&mutex_);
        until = drain_until_;
      }
      admission_->WaitForWork(until);
    }
    next = Decide(RunRound());
  }
  admission_->Stop();  // first, so that nothing joins the queue behind EndAll
  const bool cut_short = !admission_->idle();
  EndAll();
  MutexLock lock(&mutex_);
  cut_short_ = cut_short;
  finished_ = true;
  ended_.NotifyAll();
}

StepLoop::Next StepLoop::Decide(bool worked) {
  MutexLock lock(&mutex_);
  if (stop_) return Next::kEnd;
  if (drain_until_ && (admission_->idle() || clock_->Now() >= *drain_until_)) return Next::kEnd;
  return worked ? Next::kRound : Next::kWait;
}

bool StepLoop::RunRound() {
  EndQueued();
  EndCancelled();
  EndOverdue();
  RemoveEndedRows();
  AdmitQueued();
  const bool worked = !rows_.empty();
  if (worked) StepRows();
  RemoveEndedRows();
  ExportLoad();
  return worked;
}

void StepLoop::EndQueued() {
  for (Admission::Ended& ended : admission_->TakeEnded()) {
    RequestRecord row(ended.queued.id, std::move(ended.queued.job));
    Retire(&row, std::move(ended.status));
  }
}

void StepLoop::EndCancelled() {
  for (JobId id : admission_->TakeCancelled()) {
    const auto found =
        std::find_if(rows_.begin(), rows_.end(), [id](const Row& row) { return row->id() == id; });
    // It may have ended in the step that was under way.
    if (found != rows_.end()) EndRow(found->get(), absl::CancelledError("cancelled"));
  }
}

void StepLoop::EndOverdue() {
  const TimePoint now = clock_->Now();
  for (const Row& row : rows_) {
    if (row->over()) continue;
    const Job& job = row->job();
    if (job.deadline && *job.deadline <= now) {
      EndRow(row.get(), absl::DeadlineExceededError(
                            absl::StrCat("the deadline passed after ", row->usage().steps, " of ",
                                         job.request.policy.steps, " denoising steps")));
    } else if (job.mailbox->Stalled(options_.write_stall_limit)) {
      metrics_->stream_stalls_total.Add(1);
      EndRow(row.get(),
             absl::CancelledError(absl::StrCat("the reader took no event for ",
                                               Seconds(options_.write_stall_limit), " s")));
    }
  }
}

void StepLoop::AdmitQueued() {
  while (AdmitHead()) {
  }
}

// False if the line does not move: it is empty, or its head must wait for a row to leave.
bool StepLoop::AdmitHead() {
  const Admission::Queued* head = admission_->Head();
  if (head == nullptr) return false;
  const Request& request = head->job.request;
  // Asked first because Admit costs a copy of the canvas.
  if (!rows_.empty() && !HasRoom(request)) return false;
  const int64_t mask_bytes = engine_->MaskBytes(request);
  absl::StatusOr<RequestId> engine_id = engine_->Admit(request);
  // With no other row there is nothing to wait for: the refusal is final.
  if (absl::IsResourceExhausted(engine_id.status()) && !rows_.empty()) return false;

  Admission::Queued queued = admission_->Pop();
  auto row = std::make_unique<RequestRecord>(queued.id, std::move(queued.job));
  if (!engine_id.ok()) {
    Retire(row.get(), engine_id.status());
    return true;
  }
  const StartedEvent started = row->Start(*engine_id, mask_bytes, clock_->Now());
  metrics_->request_queue_seconds.Observe(started.queue_seconds);
  metrics_->prompt_tokens_total.Add(started.prompt_tokens);
  row->job().mailbox->PostStarted(started);
  rows_.push_back(std::move(row));
  return true;
}

bool StepLoop::HasRoom(const Request& request) const {
  const EngineLoad load = engine_->load();
  return load.rows < load.max_rows &&
         load.mask_bytes_used + engine_->MaskBytes(request) <= load.mask_bytes_budget;
}

void StepLoop::StepRows() {
  const std::vector<RequestRecord*> turn = TakeTurn();
  std::vector<RequestId> ids;
  ids.reserve(turn.size());
  for (const RequestRecord* row : turn) ids.push_back(row->engine_id());
  std::vector<StepResult> results = engine_->Step(ids);

  std::set<StepPhase> phases;
  for (const StepResult& result : results) {
    if (!result.status.ok()) continue;
    if (phases.empty()) {
      metrics_->batch_rows.Observe(result.batch_rows);
      metrics_->batch_tokens.Observe(static_cast<double>(result.batch_tokens));
    }
    if (phases.insert(result.phase).second) {
      metrics_->step_seconds.Observe(result.step_seconds, StepPhaseName(result.phase));
    }
  }
  for (size_t i = 0; i < turn.size(); ++i) Deliver(turn[i], ResultFor(*turn[i], i, &results));
}

// The rows of the next step, which go to the end of the line. A row that does not fit keeps its
// place, so it gets ahead of those that do, and the first always steps.
std::vector<RequestRecord*> StepLoop::TakeTurn() {
  std::vector<RequestRecord*> turn;
  std::vector<Row> waiting;
  std::vector<Row> stepping;
  int64_t tokens = 0;
  for (Row& row : rows_) {
    if (!turn.empty() && tokens + row->batch_tokens() > options_.max_batch_tokens) {
      waiting.push_back(std::move(row));
      continue;
    }
    tokens += row->batch_tokens();
    turn.push_back(row.get());
    stepping.push_back(std::move(row));
  }
  rows_ = std::move(waiting);
  std::move(stepping.begin(), stepping.end(), std::back_inserter(rows_));
  return turn;
}

void StepLoop::Deliver(RequestRecord* row, const StepResult& result) {
  if (!result.status.ok()) {
    if (result.not_finite) metrics_->nan_rows_total.Add(1);
    EndRow(row, RowError(result.status));
    return;
  }
  const bool had_mask = row->has_mask();
  const GuardReason guard = row->sparsity().guard;
  ProgressEvent progress = row->Apply(result, clock_->Now());
  CountStep(*row, result);
  CountMask(*row, result, had_mask, guard);
  row->job().mailbox->PostProgress(std::move(progress));
  if (result.finished) Retire(row, absl::OkStatus());
}

void StepLoop::CountStep(const RequestRecord& row, const StepResult& result) {
  const auto committed = static_cast<double>(result.committed.size());
  metrics_->denoising_steps_total.Add(1, StepPhaseName(result.phase));
  metrics_->committed_tokens_total.Add(committed);
  metrics_->tokens_per_forward.Observe(committed / row.forwards_per_step());
  metrics_->attention_density.Observe(result.density, Preset(row));
  if (row.usage().committed_tokens > 0 &&
      row.usage().committed_tokens == static_cast<int32_t>(result.committed.size())) {
    metrics_->first_commit_seconds.Observe(*row.timings().first_commit_seconds);
  }
  if (row.inter_commit_seconds()) {
    metrics_->inter_commit_seconds.Observe(*row.inter_commit_seconds());
  }
}

void StepLoop::CountMask(const RequestRecord& row, const StepResult& result, bool had_mask,
                         GuardReason guard) {
  if (row.sparsity().guard != guard) {
    metrics_->attention_guard_total.Add(1, GuardReasonName(row.sparsity().guard));
  }
  // A new mask takes the old one's place; the guard lets go of either.
  const int built = BuildsMask(result.phase) ? 1 : 0;
  metrics_->mask_builds_total.Add(built);
  metrics_->mask_frees_total.Add((had_mask ? 1 : 0) + built - (row.has_mask() ? 1 : 0));
  if (built == 0) return;
  metrics_->mask_build_seconds.Observe(result.mask_build_seconds);
  if (result.retained_mass) {
    metrics_->attention_retained_mass.Observe(*result.retained_mass, Preset(row));
  }
}

void StepLoop::EndRow(RequestRecord* row, absl::Status status) {
  engine_->Cancel(row->engine_id());
  Retire(row, std::move(status));
}

void StepLoop::Retire(RequestRecord* row, absl::Status status) {
  // Before the event, so that whoever reads it can use the name again, and sees it counted.
  const bool promised = admission_->Finish(row->id());
  if (promised && !absl::IsCancelled(status)) status = absl::CancelledError("cancelled");
  const bool started = row->state() == RequestState::kRunning;
  FinishedEvent finished = row->Finish(std::move(status), clock_->Now());
  CountEnd(started, *row, finished.status.code());
  ExportLoad();
  row->job().mailbox->PostFinished(std::move(finished));
}

void StepLoop::CountEnd(bool started, const RequestRecord& row, absl::StatusCode code) {
  const char* place = started ? "running" : "queued";
  metrics_->CountRequest(code);
  if (code == absl::StatusCode::kCancelled) metrics_->cancelled_total.Add(1, place);
  if (code == absl::StatusCode::kDeadlineExceeded) metrics_->deadline_miss_total.Add(1, place);
  if (row.has_mask()) metrics_->mask_frees_total.Add(1);
  if (!started) return;
  const Timings& timings = row.timings();
  metrics_->request_seconds.Observe(timings.total_seconds);
  admission_->NoteRunSeconds(timings.total_seconds - timings.queue_seconds);
}

void StepLoop::RemoveEndedRows() {
  rows_.erase(
      std::remove_if(rows_.begin(), rows_.end(), [](const Row& row) { return row->over(); }),
      rows_.end());
}

void StepLoop::EndAll() {
  for (Admission::Queued& queued : admission_->TakeAll()) {
    RequestRecord row(queued.id, std::move(queued.job));
    Retire(&row, ShutdownError());
  }
  for (const Row& row : rows_) EndRow(row.get(), ShutdownError());
  RemoveEndedRows();
}

void StepLoop::ExportLoad() {
  const EngineLoad load = engine_->load();
  metrics_->requests_running.Set(load.rows);
  metrics_->mask_bytes_used.Set(static_cast<double>(load.mask_bytes_used));
}

}  // namespace sparsed
