// SPDX-License-Identifier: Apache-2.0
#include "server/mailbox.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sparsed {
namespace {

// `newer` happened after `older`, and nobody has seen either.
void MergeProgress(ProgressEvent newer, ProgressEvent* older) {
  std::vector<TokenEdit> committed = std::move(older->committed);
  const auto middle = static_cast<std::ptrdiff_t>(committed.size());
  committed.insert(committed.end(), newer.committed.begin(), newer.committed.end());
  std::inplace_merge(
      committed.begin(), committed.begin() + middle, committed.end(),
      [](const TokenEdit& a, const TokenEdit& b) { return a.position < b.position; });
  newer.committed = std::move(committed);
  *older = std::move(newer);
}

}  // namespace

Mailbox::Mailbox(const MailboxOptions& options, const Clock* clock)
    : options_(options), clock_(clock) {}

void Mailbox::PostStarted(StartedEvent event) {
  if (options_.final_only) return;
  {
    MutexLock lock(&mutex_);
    const bool was_due = HasDue();
    started_ = event;
    NoteDue(was_due);
  }
  Wake();
}

void Mailbox::PostProgress(ProgressEvent event) {
  if (options_.final_only) return;
  {
    MutexLock lock(&mutex_);
    const bool was_due = HasDue();
    progress_due_ |= event.step % options_.every_steps == 0 || event.step >= event.total_steps;
    if (progress_) {
      MergeProgress(std::move(event), &*progress_);
    } else {
      progress_ = std::move(event);
    }
    NoteDue(was_due);
  }
  Wake();
}

void Mailbox::PostFinished(FinishedEvent event) {
  {
    MutexLock lock(&mutex_);
    const bool was_due = HasDue();
    progress_due_ = progress_.has_value();
    finished_ = std::move(event);
    NoteDue(was_due);
  }
  Wake();
}

bool Mailbox::Stalled(Duration limit) const {
  MutexLock lock(&mutex_);
  return HasDue() && clock_->Now() - waiting_since_ >= limit;
}

std::optional<Event> Mailbox::TryTake() {
  MutexLock lock(&mutex_);
  return TakeDue();
}

std::optional<Event> Mailbox::Take() {
  MutexLock lock(&mutex_);
  while (!HasDue() && !over_) changed_.Wait(&mutex_);
  return TakeDue();
}

void Mailbox::SetWake(std::function<void()> wake) {
  {
    MutexLock lock(&mutex_);
    wake_ = std::move(wake);
    // A call of the old function may still run; whoever replaces it may be about to free what it
    // uses.
    while (IsWakingElsewhere()) changed_.Wait(&mutex_);
  }
  Wake();
}

bool Mailbox::HasDue() const {
  return started_.has_value() || progress_due_ || finished_.has_value();
}

bool Mailbox::IsWakingElsewhere() const {
  return std::any_of(waking_.begin(), waking_.end(),
                     [](std::thread::id id) { return id != std::this_thread::get_id(); });
}

std::optional<Event> Mailbox::TakeDue() {
  waiting_since_ = clock_->Now();
  if (started_) return *std::exchange(started_, std::nullopt);
  if (progress_due_) {
    progress_due_ = false;
    return *std::exchange(progress_, std::nullopt);
  }
  if (finished_) {
    over_ = true;
    return *std::exchange(finished_, std::nullopt);
  }
  return std::nullopt;
}

void Mailbox::NoteDue(bool was_due) {
  if (!was_due) waiting_since_ = clock_->Now();
  if (HasDue()) changed_.NotifyAll();
}

void Mailbox::Wake() {
  std::function<void()> wake;
  {
    MutexLock lock(&mutex_);
    if (!wake_ || !HasDue()) return;
    wake = wake_;
    waking_.push_back(std::this_thread::get_id());
  }
  wake();
  wake = nullptr;  // what it captured may not outlive the call
  MutexLock lock(&mutex_);
  waking_.erase(std::find(waking_.begin(), waking_.end(), std::this_thread::get_id()));
  changed_.NotifyAll();
}

}  // namespace sparsed
