// SPDX-License-Identifier: Apache-2.0
// LiveCalls: how many Generate and GenerateStream calls gRPC still works on, so that a shutdown can
// let last words be read without waiting for streams that never end (health Watch, reflection).
//
//   LiveCalls::Token token = live_calls.Enter();  // counted while the token lives
//   live_calls.WaitForNone(std::chrono::seconds(5));
//
// Any thread. Must outlive its tokens.
#pragma once

#include <memory>

#include "engine/base/mutex.h"
#include "server/clock.h"

namespace sparsed {

class LiveCalls {
 public:
  using Token = std::shared_ptr<void>;

  Token Enter();

  // False if some were left after `limit`.
  bool WaitForNone(Duration limit);

 private:
  void Leave();

  Mutex mutex_;
  CondVar none_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sparsed
