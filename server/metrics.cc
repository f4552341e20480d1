// SPDX-License-Identifier: Apache-2.0
#include "server/metrics.h"

#include <sstream>

#include <prometheus/text_serializer.h>

#include "engine/attention/plan.h"
#include "engine/types.h"
#include "server/events.h"

namespace sparsed {
namespace {

// A macro parameter is called `name`, so Catalogue cannot name the field.
std::string NameOf(const MetricLabel& label) { return label.name; }

MetricLabel NoLabel() { return {}; }

MetricLabel CodeLabel() {
  MetricLabel label{.name = "code", .values = {}};
  for (int code = 0; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    label.values.push_back(absl::StatusCodeToString(static_cast<absl::StatusCode>(code)));
  }
  return label;
}

MetricLabel PhaseLabel() {
  MetricLabel label{.name = "phase", .values = {}};
  for (StepPhase phase : kStepPhases) label.values.emplace_back(StepPhaseName(phase));
  return label;
}

MetricLabel GuardLabel() {
  MetricLabel label{.name = "reason", .values = {}};
  for (GuardReason reason : {GuardReason::kShortCanvas, GuardReason::kHighDensity}) {
    label.values.emplace_back(GuardReasonName(reason));
  }
  return label;
}

MetricLabel PlaceLabel() { return {.name = "phase", .values = {"queued", "running"}}; }

MetricLabel PresetLabel() {
  MetricLabel label{.name = "preset", .values = {}};
  for (const AttentionPreset& preset : AttentionPresets()) {
    label.values.push_back(preset.plan.preset);
  }
  return label;
}

}  // namespace

Metrics::Metrics()
    : registry_(std::make_unique<prometheus::Registry>())
#define X(kind, name, help, label) , name(registry_.get(), {"sparsed_" #name, help}, label())
#include "server/metrics.def"
#undef X
{
}

void Metrics::CountRequest(absl::StatusCode code) {
  requests_total.Add(1, absl::StatusCodeToString(code));
}

std::string Metrics::Expose() const {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, registry_->Collect());
  return out.str();
}

std::vector<Metrics::Entry> Metrics::Catalogue() {
  return {
#define X(kind, name, help, label) {#kind, "sparsed_" #name, help, NameOf(label())},
#include "server/metrics.def"
#undef X
  };
}

}  // namespace sparsed
