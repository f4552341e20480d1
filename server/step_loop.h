// SPDX-License-Identifier: Apache-2.0
// StepLoop: the one thread that drives the engine. Where a step is executed: RunRound.
//
//   StepLoop loop({.max_batch_tokens = 8192}, engine.get(), &admission, &metrics, &clock);
//   loop.Start();
//   …                                   // RPC threads: admission.Reserve, Submit, Cancel
//   loop.Drain(std::chrono::seconds(30));  // SIGTERM
//
// A round: drop cancelled, expired and stalled rows; admit from the queue while the engine takes
// them; one Engine::Step over the rows whose turn it is; post events; count. A row leaves the
// moment it finishes. Rows take turns, least recently stepped first, so that none starves. Owns the
// running rows. Engine, admission, metrics and clock must outlive it. Threads: Start, Drain, Stop
// and the destructor from one owner thread, but Stop also while Drain waits, from any thread.
// RunRound by the loop thread, or by a test that never calls Start.
#pragma once

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <absl/status/status.h>

#include "engine/base/mutex.h"
#include "engine/engine.h"
#include "server/admission.h"
#include "server/clock.h"
#include "server/metrics.h"
#include "server/request_record.h"

namespace sparsed {

struct StepLoopOptions {
  // Canvas tokens that share one step (twice as many count for a row with guidance). A row that is
  // larger on its own steps alone.
  int64_t max_batch_tokens = 16384;
  // A reader that has taken nothing for so long while events wait loses its request.
  Duration write_stall_limit = std::chrono::seconds(30);
};

class StepLoop {
 public:
  StepLoop(const StepLoopOptions& options, Engine* engine, Admission* admission, Metrics* metrics,
           const Clock* clock);
  ~StepLoop();  // Stop
  StepLoop(const StepLoop&) = delete;
  StepLoop& operator=(const StepLoop&) = delete;

  void Start();

  // Refuses new requests and lets the queued and running ones finish; after `limit` ends what is
  // left with UNAVAILABLE. Returns, with the thread ended, true if nothing had to be cut short.
  bool Drain(Duration limit);

  // Ends everything with UNAVAILABLE after the step in progress. Idempotent.
  void Stop();

  // One round; false if there was nothing to do.
  bool RunRound();

 private:
  using Row = std::unique_ptr<RequestRecord>;
  enum class Next { kRound, kWait, kEnd };

  void Run();
  Next Decide(bool worked);
  // Waits until Run has returned; runs it here if Start was never called.
  void AwaitEnd();

  // Parts of a round, in order.
  void EndQueued();
  void EndCancelled();
  void EndOverdue();
  void AdmitQueued();
  void StepRows();

  bool AdmitHead();
  bool HasRoom(const Request& request) const;
  std::vector<RequestRecord*> TakeTurn();
  void Deliver(RequestRecord* row, const StepResult& result);
  void CountStep(const RequestRecord& row, const StepResult& result);
  // `had_mask`, `guard`: the row's, before the step.
  void CountMask(const RequestRecord& row, const StepResult& result, bool had_mask,
                 GuardReason guard);

  // Releases the row in the engine, then Retire.
  void EndRow(RequestRecord* row, absl::Status status);
  // The request is over and the engine holds nothing of it: count, then tell.
  void Retire(RequestRecord* row, absl::Status status);
  void CountEnd(bool started, const RequestRecord& row, absl::StatusCode code);
  void RemoveEndedRows();
  void EndAll();  // with UNAVAILABLE
  void ExportLoad();

  const StepLoopOptions options_;
  Engine* const engine_;
  Admission* const admission_;
  Metrics* const metrics_;
  const Clock* const clock_;

  std::vector<Row> rows_;  // loop thread only; least recently stepped first

  Mutex mutex_;
  CondVar ended_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;    // somebody runs, or ran, Run
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;   // Run has returned
  bool cut_short_ ABSL_GUARDED_BY(mutex_) = false;  // something was left when it did
  std::optional<TimePoint> drain_until_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace sparsed
