// SPDX-License-Identifier: Apache-2.0
// Mailbox: one request's events. The step loop posts and never waits; one reader takes.
//
//   auto mailbox = std::make_shared<Mailbox>(MailboxOptions{.every_steps = 4}, &clock);
//   while (std::optional<Event> event = mailbox->Take()) Use(*event);        // a blocking reader
//   mailbox->SetWake([this] { Wake(); });                                    // or a reactor:
//   while (std::optional<Event> event = mailbox->TryTake()) Write(*event);   // … one per write
//
// Bounded: holds at most one event of each kind. Progress that nobody took yet is merged: committed
// edits accumulate (each position commits once), provisional ones are replaced by the newest.
// Ownership: shared by the job and its reader. The clock must outlive it.
// Threads: Post* by the step loop, TryTake/Take/SetWake by one reader, Stalled by any.
#pragma once

#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "engine/base/mutex.h"
#include "server/clock.h"
#include "server/events.h"

namespace sparsed {

struct MailboxOptions {
  // Drop started and progress events: the reader only wants the result.
  bool final_only = false;
  // A progress event is due every so many steps, and after the last. At least 1.
  int32_t every_steps = 1;
};

class Mailbox {
 public:
  Mailbox(const MailboxOptions& options, const Clock* clock);

  void PostStarted(StartedEvent event);
  void PostProgress(ProgressEvent event);
  void PostFinished(FinishedEvent event);

  // True if an event has been waiting, and the reader has taken nothing, for `limit` or longer.
  bool Stalled(Duration limit) const;

  // The next event, or nothing if none is due.
  std::optional<Event> TryTake();

  // Waits for the next event. Nothing once `finished` has been taken.
  std::optional<Event> Take();

  // `wake` is called after every post that leaves something to take, by the posting thread, which
  // must not be kept; and at once, by the calling thread, if something waits already. So two calls
  // may overlap. No lock is held.
  // SetWake(nullptr) returns when no call is running any more (unless called from within one), so
  // a reactor may die after it. Do not call it while holding a lock that `wake` takes.
  void SetWake(std::function<void()> wake);

 private:
  bool HasDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsWakingElsewhere() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Event> TakeDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // After a post: starts the stall timer if nothing was due before; wakes a blocking reader.
  void NoteDue(bool was_due) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls `wake_`, if there is one and something to take.
  void Wake() ABSL_LOCKS_EXCLUDED(mutex_);

  const MailboxOptions options_;
  const Clock* const clock_;

  mutable Mutex mutex_;
  CondVar changed_;  // an event became due, or a wake call returned
  std::optional<StartedEvent> started_ ABSL_GUARDED_BY(mutex_);
  std::optional<ProgressEvent> progress_ ABSL_GUARDED_BY(mutex_);
  bool progress_due_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<FinishedEvent> finished_ ABSL_GUARDED_BY(mutex_);
  bool over_ ABSL_GUARDED_BY(mutex_) = false;        // `finished` was taken
  TimePoint waiting_since_ ABSL_GUARDED_BY(mutex_);  // meaningful while something is due
  std::function<void()> wake_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread::id> waking_ ABSL_GUARDED_BY(mutex_);  // who is inside `wake_` now
};

}  // namespace sparsed
