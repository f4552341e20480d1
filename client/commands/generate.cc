// SPDX-License-Identifier: Apache-2.0
#include "client/commands/commands.h"
#include "client/generation_run.h"

namespace sparsed::client {

int Run(Session& session, const GenerateOptions& options) {
  const absl::StatusOr<std::string> prompt = ReadText(options.prompt, "prompt");
  if (!prompt.ok()) return ReportBadInput(prompt.status());
  v1::GenerateRequest request = options.request;
  request.set_prompt(*prompt);
  return RunGeneration(session, request, options.stream).exit_code;
}

}  // namespace sparsed::client
