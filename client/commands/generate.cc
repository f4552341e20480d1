// SPDX-License-Identifier: Apache-2.0
#include "client/commands/commands.h"
#include "client/generation_run.h"

namespace sparsed::client {

int Run(Session& session, const GenerateOptions& options) {
  const absl::StatusOr<std::string> prompt = ReadText(options.prompt, "prompt");
  if (!prompt.ok()) return ReportBadInput(prompt.status());
  GenerationSettings generation = options.generation;
  generation.request.set_prompt(*prompt);
  return RunGeneration(session, generation).exit_code;
}

}  // namespace sparsed::client
