// SPDX-License-Identifier: Apache-2.0
// Answers: from the server's events to proto messages. Pure functions.
#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "server/events.h"
#include "server/rpc/served_model.h"
#include "sparsed/v1/generation.pb.h"

namespace sparsed {

v1::Started MakeStarted(const StartedEvent& event, const v1::Resolved& resolved);

// Committed edits first, then provisional ones, each with the bytes its token adds to the text.
v1::Progress MakeProgress(const ProgressEvent& event, const Tokenizer& tokenizer);

// The part of the canvas that counts as generated: before the first end token.
absl::Span<const int32_t> GeneratedTokens(const Canvas& canvas, const ServedModel& model);

// `event.status` is OK. request_id and resolved are the caller's to set.
absl::StatusOr<v1::GenerateResponse> MakeResponse(const FinishedEvent& event,
                                                  const ServedModel& model);

}  // namespace sparsed
