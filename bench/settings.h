// SPDX-License-Identifier: Apache-2.0
// Setting: a named AttentionPlan of the fidelity benchmark, read from JSON lines.
//
//   {"name": "sparsed_b32_skip0/0.03", "preset": "sparsed", "ratio": 0.03, "block_tokens": 32}
//   ASSIGN_OR_RETURN(std::vector<Setting> settings, LoadSettings("bench/fidelity_settings.jsonl"));
//
// `preset` gives the plan, every other key overrides the AttentionPlan field of that name; rules
// are written as requests write them ("pooled_mass"), sizes as {"t": 1, "h": 8, "w": 8}. A name is
// "<curve>/<point>" or a word: settings that share a curve are joined by a line in plots.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "engine/attention/plan.h"

namespace sparsed {

struct Setting {
  std::string name;
  AttentionPlan plan;
  nlohmann::json overrides;  // as read, without the name: tells two plans of one name apart
};

// INVALID_ARGUMENT names the key, its value and what is allowed.
absl::StatusOr<Setting> ParseSetting(const std::string& line);

// All settings of a file, in its order; empty lines are skipped. Errors name the line; two settings
// of one name are one.
absl::StatusOr<std::vector<Setting>> LoadSettings(const std::string& path);

// Those whose name matches one of the shell patterns ("sparsed_*"); all if there are no patterns.
// NOT_FOUND if a pattern matches none.
absl::StatusOr<std::vector<Setting>> FilterSettings(const std::vector<Setting>& settings,
                                                    const std::vector<std::string>& patterns);

}  // namespace sparsed
