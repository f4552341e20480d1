// SPDX-License-Identifier: Apache-2.0
// Eventually: waits, with a limit, for what another process does; it has no way to wake us.
//   EXPECT_TRUE(Eventually([&] { return server.Load().running_rows() == 0; }));
#pragma once

#include <chrono>
#include <thread>

namespace sparsed::testing {

// Ample for any single thing a test waits for, also on a busy machine and under a sanitizer.
inline constexpr std::chrono::seconds kPatience{60};

// True as soon as `condition` is; false if it still is not at `limit`.
template <class Condition>
bool Eventually(Condition condition, std::chrono::milliseconds limit = kPatience) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace sparsed::testing
