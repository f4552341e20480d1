// SPDX-License-Identifier: Apache-2.0
// RequestState: the life of one request, and the only moves it may make.
//   kQueued  -> kRunning, kCancelled, kExpired
//   kRunning -> kFinished, kFailed, kCancelled, kExpired
// The other four are final. A shutdown cancels; a request the engine refuses has run zero steps and
// fails.
#pragma once

#include <array>

#include <absl/status/status.h>

namespace sparsed {

enum class RequestState { kQueued, kRunning, kFinished, kFailed, kCancelled, kExpired };

inline constexpr std::array<RequestState, 6> kRequestStates = {
    RequestState::kQueued, RequestState::kRunning,   RequestState::kFinished,
    RequestState::kFailed, RequestState::kCancelled, RequestState::kExpired};

const char* RequestStateName(RequestState state);  // "queued", "running", …

// OK for a legal move, else INTERNAL naming both states.
absl::Status CheckMove(RequestState from, RequestState to);

}  // namespace sparsed
