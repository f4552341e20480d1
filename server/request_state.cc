// SPDX-License-Identifier: Apache-2.0
#include "server/request_state.h"

#include <absl/strings/str_cat.h>

namespace sparsed {
namespace {

bool IsLegalMove(RequestState from, RequestState to) {
  switch (from) {
    case RequestState::kQueued:
      return to == RequestState::kRunning || to == RequestState::kCancelled ||
             to == RequestState::kExpired;
    case RequestState::kRunning:
      return to == RequestState::kFinished || to == RequestState::kFailed ||
             to == RequestState::kCancelled || to == RequestState::kExpired;
    case RequestState::kFinished:
    case RequestState::kFailed:
    case RequestState::kCancelled:
    case RequestState::kExpired:
      return false;
  }
  return false;
}

}  // namespace

const char* RequestStateName(RequestState state) {
  switch (state) {
    case RequestState::kQueued:
      return "queued";
    case RequestState::kRunning:
      return "running";
    case RequestState::kFinished:
      return "finished";
    case RequestState::kFailed:
      return "failed";
    case RequestState::kCancelled:
      return "cancelled";
    case RequestState::kExpired:
      return "expired";
  }
  return "unknown";
}

absl::Status CheckMove(RequestState from, RequestState to) {
  if (IsLegalMove(from, to)) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("illegal move of a request from ", RequestStateName(from),
                                          " to ", RequestStateName(to)));
}

}  // namespace sparsed
