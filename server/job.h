// SPDX-License-Identifier: Apache-2.0
// Job: one validated request on its way to the step loop.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/types.h"
#include "server/clock.h"
#include "server/mailbox.h"

namespace sparsed {

using JobId = uint64_t;  // unique in the process, unlike the caller's request_id

struct Job {
  std::string request_id;  // the caller's name for it; not empty
  Request request;         // Engine::Validate said OK
  TimePoint arrival;       // when the RPC came in; queue and total times count from here
  std::optional<TimePoint> deadline;
  std::shared_ptr<Mailbox> mailbox;  // gets exactly one FinishedEvent once Submit succeeded
};

}  // namespace sparsed
