// SPDX-License-Identifier: Apache-2.0
#include "client/summary.h"

#include <algorithm>
#include <cmath>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

namespace sparsed::client {
namespace {

std::string CountOf(uint64_t n, const char* noun) {
  return absl::StrCat(n, " ", noun, n == 1 ? "" : "s");
}

std::string TokensLine(const v1::GenerateResponse& response) {
  const v1::Usage& usage = response.usage();
  // The queue is the server's load, not its speed.
  const double seconds = response.timings().total_seconds() - response.timings().queue_seconds();
  const double rate = seconds > 0 ? usage.generated_tokens() / seconds : 0;
  return absl::StrFormat("%s from %s of prompt in %s (%s), %.3g tokens/s\n",
                         CountOf(usage.generated_tokens(), "token"),
                         CountOf(usage.prompt_tokens(), "token"), FormatSeconds(seconds),
                         CountOf(usage.steps(), "step"), rate);
}

std::string PhasesLine(const v1::Timings& timings) {
  if (timings.phases().empty()) return "";
  return absl::StrCat(
      "phases: ",
      absl::StrJoin(
          timings.phases(), " · ",
          [](std::string* out, const v1::PhaseTime& phase) {
            absl::StrAppend(out, PhaseName(phase.phase()), " ", CountOf(phase.steps(), "step"), " ",
                            FormatSeconds(phase.seconds()));
            if (phase.steps() == 0) return;
            absl::StrAppend(out, " (", FormatSeconds(phase.seconds() / phase.steps()), " each)");
          }),
      "\n");
}

std::string SparsityLine(const v1::GenerateResponse& response) {
  const v1::Sparsity& sparsity = response.sparsity();
  const std::string& preset = response.resolved().attention().preset();
  std::string line = absl::StrCat("attention: ", preset.empty() ? "(no preset)" : preset);
  if (sparsity.has_density()) {
    absl::StrAppendFormat(&line, " · mask density %.3f", sparsity.density());
  }
  if (sparsity.has_retained_mass()) {
    absl::StrAppendFormat(&line, " · retained mass %.3f", sparsity.retained_mass());
  }
  absl::StrAppendFormat(&line, " · mean density of all steps %.3f\n", sparsity.mean_density());
  return line;
}

}  // namespace

std::string PhaseName(v1::Phase phase) {
  switch (phase) {
    case v1::PHASE_DENSE:
      return "dense";
    case v1::PHASE_BUILD:
      return "build";
    case v1::PHASE_SPARSE:
      return "sparse";
    default:
      return "unknown phase";
  }
}

std::string FormatSeconds(double seconds) {
  if (seconds < 0.0005) return absl::StrFormat("%.0f µs", std::max(seconds, 0.0) * 1e6);
  if (seconds < 0.9995) return absl::StrFormat("%.3g ms", seconds * 1e3);
  if (seconds < 99.95) return absl::StrFormat("%.3g s", seconds);
  const auto whole = static_cast<int64_t>(std::lround(seconds));
  return absl::StrCat(whole / 60, " min ", whole % 60, " s");
}

std::string StatusLine(const v1::Progress& progress) {
  std::string line =
      absl::StrFormat("step %d/%d · %s · density %.3f", progress.step(), progress.steps(),
                      PhaseName(progress.phase()), progress.density());
  if (progress.has_retained_mass()) {
    absl::StrAppendFormat(&line, " · mass %.3f", progress.retained_mass());
  }
  absl::StrAppend(&line, " · ", FormatSeconds(progress.step_seconds()), "/step");
  return line;
}

std::string Summary(const v1::GenerateResponse& response) {
  const char* reason = response.finish_reason() == v1::FINISH_REASON_END_OF_TEXT ? "the text ended"
                                                                                 : "all steps ran";
  return absl::StrCat(TokensLine(response), PhasesLine(response.timings()), SparsityLine(response),
                      "queue ", FormatSeconds(response.timings().queue_seconds()),
                      " · first token after ",
                      FormatSeconds(response.timings().first_commit_seconds()), " · ", reason,
                      " · seed ", response.resolved().decoding().seed(), "\n");
}

}  // namespace sparsed::client
