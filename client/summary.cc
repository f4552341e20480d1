// SPDX-License-Identifier: Apache-2.0
#include "client/summary.h"

#include <algorithm>
#include <cmath>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace sparsed::client {
namespace {

std::string CountOf(uint64_t n, const char* noun) {
  return absl::StrCat(n, " ", noun, n == 1 ? "" : "s");
}

// A line of the summary: what it is about in a column of its own.
std::string Labelled(const std::string& label, const std::string& text) {
  return absl::StrFormat("%-10s %s\n", label, text);
}

std::string TokensLine(const v1::GenerateResponse& response) {
  const v1::Usage& usage = response.usage();
  // The queue is the server's load, not its speed.
  const double seconds = response.timings().total_seconds() - response.timings().queue_seconds();
  const double rate = seconds > 0 ? usage.generated_tokens() / seconds : 0;
  return Labelled("generated", absl::StrFormat("%s in %s · %.3g tokens/s · prompt %s",
                                               CountOf(usage.generated_tokens(), "token"),
                                               FormatSeconds(seconds), rate,
                                               CountOf(usage.prompt_tokens(), "token")));
}

std::string StepsLines(const v1::GenerateResponse& response) {
  std::string lines =
      Labelled("steps", absl::StrCat(response.usage().steps(),
                                     response.finish_reason() == v1::FINISH_REASON_END_OF_TEXT
                                         ? ", then the text had ended"
                                         : ""));
  for (const v1::PhaseTime& phase : response.timings().phases()) {
    if (phase.steps() == 0) continue;
    lines +=
        Labelled(absl::StrCat("  ", PhaseName(phase.phase())),
                 absl::StrFormat("%d in %s, %s each", phase.steps(), FormatSeconds(phase.seconds()),
                                 FormatSeconds(phase.seconds() / phase.steps())));
  }
  return lines;
}

std::string AttentionLine(const v1::GenerateResponse& response) {
  const v1::Sparsity& sparsity = response.sparsity();
  std::string text = response.resolved().attention().preset();
  if (sparsity.has_density()) {
    absl::StrAppendFormat(&text, " · density %.3f (all steps %.3f)", sparsity.density(),
                          sparsity.mean_density());
  } else {
    absl::StrAppendFormat(&text, " · density of all steps %.3f", sparsity.mean_density());
  }
  if (sparsity.has_retained_mass()) {
    absl::StrAppendFormat(&text, " · retained mass %.3f", sparsity.retained_mass());
  }
  return Labelled("attention", text);
}

// Nothing if the request ran as its plan says.
std::string GuardLine(const v1::Sparsity& sparsity) {
  if (!sparsity.has_guard()) return "";
  std::string reason = sparsity.guard();  // of a newer server
  if (reason == "short_canvas") reason = "canvas too short for sparse attention to pay";
  if (reason == "high_density") reason = "the mask keeps too many blocks to pay";
  return Labelled("", absl::StrCat("ran dense: ", reason, "; --no-guard keeps it sparse"));
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
    case v1::PHASE_REBUILD:
      return "rebuild";
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
  absl::StrAppend(&line, " · ", FormatSeconds(progress.step_seconds()));
  return line;
}

std::string Summary(const v1::GenerateResponse& response) {
  const v1::Timings& timings = response.timings();
  return absl::StrCat(
      TokensLine(response), StepsLines(response), AttentionLine(response),
      GuardLine(response.sparsity()),
      Labelled("waited",
               absl::StrCat(FormatSeconds(timings.queue_seconds()), " in the queue, ",
                            FormatSeconds(timings.first_commit_seconds()), " for the first token")),
      Labelled("seed", absl::StrCat(response.resolved().decoding().seed())));
}

std::string LayerTable(const v1::Sparsity& sparsity) {
  std::string table;
  int number = 0;
  for (const v1::LayerSparsity& layer : sparsity.layers()) {
    table += Labelled(absl::StrCat("  layer ", number++),
                      absl::StrFormat("density %.3f · retained mass %.3f", layer.density(),
                                      layer.retained_mass()));
  }
  return table;
}

}  // namespace sparsed::client
