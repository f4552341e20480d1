// SPDX-License-Identifier: Apache-2.0
#include "server/admission.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

#include "engine/base/status_macros.h"
#include "server/retry_after.h"

namespace sparsed {
namespace {

// A retry sooner than this only adds load; one later than this wastes a free server.
constexpr double kMinRetrySeconds = 1;
constexpr double kMaxRetrySeconds = 60;
// Weight of the latest request in the mean run time.
constexpr double kRunTimeWeight = 0.2;
// Far deadlines would overflow the system's timers. Waking once an hour costs nothing.
constexpr Duration kLongestWait = std::chrono::hours(1);

}  // namespace

Admission::Slot::~Slot() {
  if (owner_ != nullptr) owner_->ReleaseSlot();
}

Admission::Admission(const AdmissionOptions& options, const Clock* clock, Metrics* metrics)
    : options_(options), clock_(clock), metrics_(metrics) {}

absl::StatusOr<Admission::Slot> Admission::Reserve() {
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(CheckOpen());
  if (occupied() >= options_.max_queued) {
    return BusyError(absl::StrCat("the queue is full: ", occupied(), " of ", options_.max_queued,
                                  " requests are waiting"),
                     RetryEstimate());
  }
  ++reserved_;
  ExportQueueLength();
  return Slot(this);
}

absl::StatusOr<JobId> Admission::Submit(Slot slot, Job job) {
  MutexLock lock(&mutex_);
  slot.owner_ = nullptr;
  --reserved_;
  signalled_ = true;
  work_.NotifyAll();
  ExportQueueLength();
  if (stopped_) return absl::UnavailableError("the server has stopped");
  const JobId id = next_id_;
  if (!by_name_.emplace(job.request_id, id).second) {
    return absl::AlreadyExistsError(absl::StrCat("request_id is ", job.request_id,
                                                 ": a request of this name is queued or running"));
  }
  ++next_id_;
  live_[id].request_id = job.request_id;
  queue_.push_back({id, std::move(job)});
  ExportQueueLength();
  return id;
}

bool Admission::Cancel(const std::string& request_id) {
  MutexLock lock(&mutex_);
  const auto found = by_name_.find(request_id);
  return found != by_name_.end() && CancelLocked(found->second);
}

bool Admission::CancelJob(JobId id) {
  MutexLock lock(&mutex_);
  return CancelLocked(id);
}

AdmissionLoad Admission::load() const {
  MutexLock lock(&mutex_);
  return {.queued = occupied(),
          .max_queued = options_.max_queued,
          .running = static_cast<int32_t>(live_.size() - queue_.size()),
          .draining = draining_ || stopped_};
}

void Admission::WaitForWork(std::optional<TimePoint> until) {
  MutexLock lock(&mutex_);
  while (!signalled_) {
    if (!until) {
      work_.Wait(&mutex_);
      continue;
    }
    const Duration left = *until - clock_->Now();
    if (left <= Duration::zero()) break;
    work_.WaitFor(&mutex_, std::min(left, kLongestWait));
  }
  signalled_ = false;
}

std::vector<Admission::Ended> Admission::TakeEnded() {
  const TimePoint now = clock_->Now();
  std::vector<Ended> ended;
  std::deque<Queued> kept;
  MutexLock lock(&mutex_);
  for (Queued& queued : queue_) {
    if (live_.at(queued.id).cancelled) {
      ended.push_back({std::move(queued), absl::CancelledError("cancelled while queued")});
    } else if (queued.job.deadline && *queued.job.deadline <= now) {
      ended.push_back({std::move(queued), absl::DeadlineExceededError(
                                              "the deadline passed while the request was queued")});
    } else {
      kept.push_back(std::move(queued));
    }
  }
  queue_ = std::move(kept);
  ExportQueueLength();
  return ended;
}

std::vector<Admission::Queued> Admission::TakeAll() {
  MutexLock lock(&mutex_);
  std::vector<Queued> all(std::make_move_iterator(queue_.begin()),
                          std::make_move_iterator(queue_.end()));
  queue_.clear();
  ExportQueueLength();
  return all;
}

const Admission::Queued* Admission::Head() const {
  MutexLock lock(&mutex_);
  // Valid without the lock: only the step loop removes, and adding at the back of a deque moves no
  // element.
  return queue_.empty() ? nullptr : &queue_.front();
}

Admission::Queued Admission::Pop() {
  MutexLock lock(&mutex_);
  Queued head = std::move(queue_.front());
  queue_.pop_front();
  Live& live = live_.at(head.id);
  live.running = true;
  if (live.cancelled) cancelled_running_.push_back(head.id);
  ExportQueueLength();
  return head;
}

std::vector<JobId> Admission::TakeCancelled() {
  MutexLock lock(&mutex_);
  return std::exchange(cancelled_running_, {});
}

bool Admission::Finish(JobId id) {
  MutexLock lock(&mutex_);
  const auto found = live_.find(id);
  const bool cancelled = found->second.cancelled;
  by_name_.erase(found->second.request_id);
  live_.erase(found);
  return cancelled;
}

void Admission::NoteRunSeconds(double seconds) {
  MutexLock lock(&mutex_);
  mean_run_seconds_ += kRunTimeWeight * (seconds - mean_run_seconds_);
}

void Admission::Drain() {
  MutexLock lock(&mutex_);
  draining_ = true;
  signalled_ = true;
  work_.NotifyAll();
}

void Admission::Stop() {
  MutexLock lock(&mutex_);
  stopped_ = true;
  signalled_ = true;
  work_.NotifyAll();
}

bool Admission::idle() const {
  MutexLock lock(&mutex_);
  return reserved_ == 0 && live_.empty();
}

void Admission::ReleaseSlot() {
  MutexLock lock(&mutex_);
  --reserved_;
  ExportQueueLength();
  signalled_ = true;  // a drain may have waited for this slot
  work_.NotifyAll();
}

bool Admission::CancelLocked(JobId id) {
  const auto found = live_.find(id);
  if (found == live_.end()) return false;
  Live& live = found->second;
  if (live.cancelled) return true;
  live.cancelled = true;
  if (live.running) cancelled_running_.push_back(id);
  signalled_ = true;
  work_.NotifyAll();
  return true;
}

absl::Status Admission::CheckOpen() const {
  if (stopped_) return absl::UnavailableError("the server has stopped");
  // Not RESOURCE_EXHAUSTED: this server does not come back, another replica is the one to ask.
  if (draining_) {
    return absl::UnavailableError("the server is shutting down and takes no new requests");
  }
  return absl::OkStatus();
}

double Admission::RetryEstimate() const {
  // A place frees when a running request ends; with n of them that takes a nth of a run.
  const size_t running = std::max<size_t>(1, live_.size() - queue_.size());
  return std::clamp(mean_run_seconds_ / static_cast<double>(running), kMinRetrySeconds,
                    kMaxRetrySeconds);
}

int32_t Admission::occupied() const { return reserved_ + static_cast<int32_t>(queue_.size()); }

void Admission::ExportQueueLength() { metrics_->requests_waiting.Set(occupied()); }

}  // namespace sparsed
