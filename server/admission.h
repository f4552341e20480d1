// SPDX-License-Identifier: Apache-2.0
// Admission: the bounded queue between RPC threads and the step loop.
//
//   ASSIGN_OR_RETURN(Admission::Slot slot, admission.Reserve());   // before any expensive work
//   Job job = Tokenise(…);                                         // an error gives the slot back
//   ASSIGN_OR_RETURN(JobId id, admission.Submit(std::move(slot), std::move(job)));
//   admission.CancelJob(id);                                       // when the caller hangs up
//
// A slot is one place in the queue, so whoever holds one cannot be refused for want of room later.
// A job leaves the queue in order of submission. Every submitted job ends with one FinishedEvent,
// posted by the step loop and by nothing else.
// Threads: the methods before "Step loop only" may be called from any. Owns the queued jobs; must
// outlive all its slots.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "engine/base/mutex.h"
#include "server/clock.h"
#include "server/job.h"
#include "server/metrics.h"

namespace sparsed {

struct AdmissionOptions {
  int32_t max_queued = 64;  // reserved slots + queued jobs; at least 1
};

// A snapshot.
struct AdmissionLoad {
  int32_t queued = 0;  // jobs and reserved slots
  int32_t max_queued = 0;
  int32_t running = 0;
  bool draining = false;  // or stopped
};

class Admission {
 public:
  // A reserved place in the queue; given back by its destructor unless submitted.
  class Slot {
   public:
    Slot(Slot&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)) {}
    Slot& operator=(Slot&&) = delete;
    ~Slot();

   private:
    friend class Admission;
    explicit Slot(Admission* owner) : owner_(owner) {}
    Admission* owner_;
  };

  Admission(const AdmissionOptions& options, const Clock* clock, Metrics* metrics);

  // RESOURCE_EXHAUSTED with a retry time (retry_after.h) when the queue is full; UNAVAILABLE when
  // the server drains or has stopped.
  absl::StatusOr<Slot> Reserve();

  // ALREADY_EXISTS: the request_id is queued or running. UNAVAILABLE: the server stopped meanwhile.
  // After an error the job is dropped and nothing was posted. While draining, slots that were
  // reserved before are still honoured.
  absl::StatusOr<JobId> Submit(Slot slot, Job job);

  // True: the job was queued or running; it ends with CANCELLED before long, and every further
  // call says true until it does. False: unknown or already over.
  bool Cancel(const std::string& request_id);
  bool CancelJob(JobId id);

  AdmissionLoad load() const;

  // --- Step loop only ---------------------------------------------------------------------------

  struct Queued {
    JobId id = 0;
    Job job;
  };
  struct Ended {
    Queued queued;
    absl::Status status;  // CANCELLED or DEADLINE_EXCEEDED
  };

  // Waits until there is something to do: a job, a cancel, drain or stop; at most until `until`.
  void WaitForWork(std::optional<TimePoint> until);

  // Removes the queued jobs that were cancelled or are past their deadline.
  std::vector<Ended> TakeEnded();
  // Removes all queued jobs.
  std::vector<Queued> TakeAll();
  // The head of the line; it keeps its place until Pop. Null if the queue is empty. Valid until Pop
  // or Take*.
  const Queued* Head() const;
  // Moves the head from queued to running.
  Queued Pop();
  // Running jobs that were cancelled since the last call.
  std::vector<JobId> TakeCancelled();
  // The job is over: its name is free again. True if a cancel was promised to somebody, which the
  // final status must then honour.
  bool Finish(JobId id);
  // How long jobs run on average, for the retry estimate.
  void NoteRunSeconds(double seconds);

  // From now on: no new slots (Drain), no new jobs either (Stop).
  void Drain();
  void Stop();
  // Nothing is reserved, queued or running.
  bool idle() const;

 private:
  struct Live {
    std::string request_id;
    bool running = false;
    bool cancelled = false;
  };

  void ReleaseSlot();
  bool CancelLocked(JobId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckOpen() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  double RetryEstimate() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int32_t occupied() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ExportQueueLength() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const AdmissionOptions options_;
  const Clock* const clock_;
  Metrics* const metrics_;

  mutable Mutex mutex_;
  CondVar work_;
  bool signalled_ ABSL_GUARDED_BY(mutex_) = false;  // something happened since WaitForWork
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  int32_t reserved_ ABSL_GUARDED_BY(mutex_) = 0;
  JobId next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::deque<Queued> queue_ ABSL_GUARDED_BY(mutex_);
  std::map<JobId, Live> live_ ABSL_GUARDED_BY(mutex_);            // queued and running
  std::map<std::string, JobId> by_name_ ABSL_GUARDED_BY(mutex_);  // request_id -> live job
  std::vector<JobId> cancelled_running_ ABSL_GUARDED_BY(mutex_);
  double mean_run_seconds_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace sparsed
