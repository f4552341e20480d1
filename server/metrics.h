// SPDX-License-Identifier: Apache-2.0
// Metrics: what the server counts, in the names that Prometheus sees.
//
//   Metrics metrics;
//   metrics.committed_tokens_total.Add(4);
//   metrics.step_seconds.Observe(0.12, "build");
//   http_response = metrics.Expose();
//
// The list is metrics.def; one line there makes member, registration and an entry of Catalogue().
// Any thread. Owns its registry: no global state, so that tests can have many.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <prometheus/registry.h>

#include "server/metric_kinds.h"

namespace sparsed {

class Metrics {
 public:
  Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Counts one request that ended with this code. The step loop does so for every submitted job;
  // the RPC layer for what it refuses before Submit succeeds.
  void CountRequest(absl::StatusCode code);

  // The text exposition format, version 0.0.4.
  std::string Expose() const;

  struct Entry {
    std::string kind;
    std::string name;  // with the prefix
    std::string help;
    std::string label;  // empty: none
  };
  static std::vector<Entry> Catalogue();

 private:
  std::unique_ptr<prometheus::Registry> registry_;  // before the members it registers

 public:
#define X(kind, name, help, label) kind name;
#include "server/metrics.def"
#undef X
};

}  // namespace sparsed
