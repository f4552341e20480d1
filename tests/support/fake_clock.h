// SPDX-License-Identifier: Apache-2.0
// FakeClock: time that moves only when told. Any thread.
#pragma once

#include <atomic>

#include "server/clock.h"

namespace sparsed::testing {

class FakeClock final : public Clock {
 public:
  TimePoint Now() const override { return TimePoint(Duration(now_.load())); }
  void Advance(Duration duration) { now_ += duration.count(); }

 private:
  std::atomic<Duration::rep> now_ = Duration(std::chrono::hours(1)).count();
};

}  // namespace sparsed::testing
