// SPDX-License-Identifier: Apache-2.0
#include "server/stop_request.h"

#include <utility>

namespace sparsed {

// on_urgent_ runs under the lock, so that SetOnUrgent(nullptr) returns when it is not running.
void StopRequest::Request() {
  MutexLock lock(&mutex_);
  ++count_;
  asked_.NotifyAll();
  if (count_ == 2 && on_urgent_) on_urgent_();
}

bool StopRequest::requested() const {
  MutexLock lock(&mutex_);
  return count_ > 0;
}

void StopRequest::Wait() {
  MutexLock lock(&mutex_);
  while (count_ == 0) asked_.Wait(&mutex_);
}

void StopRequest::SetOnUrgent(std::function<void()> on_urgent) {
  MutexLock lock(&mutex_);
  on_urgent_ = std::move(on_urgent);
  if (count_ >= 2 && on_urgent_) on_urgent_();
}

}  // namespace sparsed
