// SPDX-License-Identifier: Apache-2.0
// MakeJob: jobs for tests of the queue and the step loop.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/admission.h"
#include "server/job.h"
#include "tests/support/fake_engine.h"

namespace sparsed::testing {

struct JobShape {
  int32_t prompt_tokens = 3;
  int32_t generation_tokens = 8;
  int32_t steps = 4;
  bool sparse = false;  // dense 1 step, build in the 2nd, then sparse
  // If not 0, with `sparse`: dense 2 steps, then a new mask in every so many.
  int32_t refresh_every = 0;
  double cfg_scale = 0;
  bool provisional = false;
  MailboxOptions mailbox = {};
};

inline Job MakeJob(std::string request_id, const JobShape& shape, const Clock* clock) {
  Job job;
  job.request_id = std::move(request_id);
  job.arrival = clock->Now();
  job.mailbox = std::make_shared<Mailbox>(shape.mailbox, clock);
  const std::vector<int32_t> prompt(static_cast<size_t>(shape.prompt_tokens), 1);
  job.request.canvas = Canvas::FromPrompt(prompt, shape.generation_tokens, FakeEngine::kMaskToken);
  job.request.policy.steps = shape.steps;
  job.request.policy.block_length = shape.generation_tokens;
  job.request.policy.cfg_scale = shape.cfg_scale;
  job.request.want_provisional = shape.provisional;
  if (shape.sparse) {
    job.request.attention.preset = "sparsed";
    job.request.attention.score = ScoreRule::kPooledMass;
    job.request.attention.select = SelectRule::kTopRatio;
    job.request.attention.skip = 2.0 / shape.steps;
    job.request.attention.refresh_every = shape.refresh_every;
  }
  return job;
}

// Everything in the mailbox; the last must be `finished` for the request to be over.
inline std::vector<Event> TakeAll(Mailbox* mailbox) {
  std::vector<Event> events;
  while (std::optional<Event> event = mailbox->TryTake()) events.push_back(*std::move(event));
  return events;
}

}  // namespace sparsed::testing
