// SPDX-License-Identifier: Apache-2.0
// Clock: where the server's own code reads the time, so that tests can set it.
//   const TimePoint deadline = clock->Now() + std::chrono::seconds(5);
// All methods may be called from any thread.
#pragma once

#include <chrono>

namespace sparsed {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::nanoseconds;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
};

inline double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace sparsed
