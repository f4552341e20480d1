// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/live_calls.h"

#include <chrono>

namespace sparsed {

LiveCalls::Token LiveCalls::Enter() {
  MutexLock lock(&mutex_);
  ++count_;
  return Token(this, [](void* self) { static_cast<LiveCalls*>(self)->Leave(); });
}

void LiveCalls::Leave() {
  MutexLock lock(&mutex_);
  if (--count_ == 0) none_.NotifyAll();
}

bool LiveCalls::WaitForNone(Duration limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  MutexLock lock(&mutex_);
  while (count_ > 0) {
    const Duration left = until - std::chrono::steady_clock::now();
    if (left <= Duration::zero()) return false;
    none_.WaitFor(&mutex_, left);
  }
  return true;
}

}  // namespace sparsed
