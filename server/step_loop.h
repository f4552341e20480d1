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
#include <absl/types/span.h>

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
  using Rows = std::vector<std::unique_ptr<RequestRecord>>;

  void Run();
  // How the loop ought to go on after a round.
  enum class Next { kRound, kWait, kEnd };
  Next Decide(bool worked);

  void EndQueued();
  void EndCancelled();
  void EndExpired();
  void AdmitQueued();
  bool HasRoom(const Request& request) const;
  bool AdmitHead();
  void StepRows();
  std::vector<size_t> ChooseRows() const;
  void ApplyResults(const std::vector<size_t>& chosen, std::vector<StepResult> results);
  void Deliver(RequestRecord* row, StepResult result);
  void EndRow(RequestRecord* row, absl::Status status);
  void EndAll(const absl::Status& status);
  void Retire(RequestRecord* row, absl::Status status);
  void RemoveEndedRows();
  void ExportLoad();

  const StepLoopOptions options_;
  Engine* const engine_;
  Admission* const admission_;
  Metrics* const metrics_;
  const Clock* const clock_;

  Rows rows_;  // loop thread only; least recently stepped first

  Mutex mutex_;
  CondVar ended_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool cut_short_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // the thread has left Run
  std::optional<TimePoint> drain_until_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace sparsed
