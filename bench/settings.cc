// SPDX-License-Identifier: Apache-2.0
#include "bench/settings.h"

#include <fnmatch.h>
#include <fstream>
#include <functional>
#include <limits>
#include <set>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "engine/base/invalid_field.h"
#include "engine/base/status_macros.h"

namespace sparsed {
namespace {

using nlohmann::json;

absl::Status Read(const char* key, const json& value, bool* out) {
  if (!value.is_boolean()) return InvalidField(key, value.dump(), "must be true or false");
  *out = value.get<bool>();
  return absl::OkStatus();
}

absl::Status Read(const char* key, const json& value, double* out) {
  if (!value.is_number()) return InvalidField(key, value.dump(), "must be a number");
  *out = value.get<double>();
  return absl::OkStatus();
}

absl::Status Read(const char* key, const json& value, int32_t* out) {
  constexpr int64_t kLimit = std::numeric_limits<int32_t>::max();
  if (!value.is_number_integer() || value > kLimit || value < -kLimit) {
    return InvalidField(key, value.dump(), "must be a whole number of 32 bits");
  }
  *out = value.get<int32_t>();
  return absl::OkStatus();
}

absl::Status Read(const char* key, const json& value, Extent3* out) {
  if (!value.is_object() || value.size() != 3 || !value.contains("t") || !value.contains("h") ||
      !value.contains("w")) {
    return InvalidField(key, value.dump(), R"(must be {"t": ..., "h": ..., "w": ...})");
  }
  RETURN_IF_ERROR(Read(key, value["t"], &out->t));
  RETURN_IF_ERROR(Read(key, value["h"], &out->h));
  return Read(key, value["w"], &out->w);
}

absl::Status Find(std::string_view name, ScoreRule* out) {
  ASSIGN_OR_RETURN(*out, FindScoreRule(name));
  return absl::OkStatus();
}
absl::Status Find(std::string_view name, SelectRule* out) {
  ASSIGN_OR_RETURN(*out, FindSelectRule(name));
  return absl::OkStatus();
}
absl::Status Find(std::string_view name, ReorderRule* out) {
  ASSIGN_OR_RETURN(*out, FindReorderRule(name));
  return absl::OkStatus();
}
absl::Status Find(std::string_view name, PriorRule* out) {
  ASSIGN_OR_RETURN(*out, FindPriorRule(name));
  return absl::OkStatus();
}

template <class Rule>
absl::Status Read(const char* key, const json& value, Rule* out) {
  if (!value.is_string()) return InvalidField(key, value.dump(), "must be a rule's name");
  return Find(value.get<std::string>(), out);
}

struct Field {
  const char* name;
  std::function<absl::Status(const Field&, const json&, AttentionPlan*)> read;
};

template <class Member>
Field PlanField(const char* name, Member AttentionPlan::*member) {
  return {name, [member](const Field& field, const json& value, AttentionPlan* plan) {
            return Read(field.name, value, &(plan->*member));
          }};
}

const std::vector<Field>& PlanFields() {
  static const auto* fields = new std::vector<Field>{
      PlanField("score", &AttentionPlan::score),
      PlanField("select", &AttentionPlan::select),
      PlanField("reorder", &AttentionPlan::reorder),
      PlanField("prior", &AttentionPlan::prior),
      PlanField("ratio", &AttentionPlan::ratio),
      PlanField("mass", &AttentionPlan::mass),
      PlanField("min_retained_mass", &AttentionPlan::min_retained_mass),
      PlanField("relevant_share", &AttentionPlan::relevant_share),
      PlanField("sink_blocks", &AttentionPlan::sink_blocks),
      PlanField("window_blocks", &AttentionPlan::window_blocks),
      PlanField("sta_window", &AttentionPlan::sta_window),
      PlanField("grid", &AttentionPlan::grid),
      PlanField("sort_blocks", &AttentionPlan::sort_blocks),
      PlanField("skip", &AttentionPlan::skip),
      PlanField("refresh_every", &AttentionPlan::refresh_every),
      PlanField("block_tokens", &AttentionPlan::block_tokens),
      PlanField("guard", &AttentionPlan::guard),
  };
  return *fields;
}

absl::Status Override(const std::string& key, const json& value, AttentionPlan* plan) {
  for (const Field& field : PlanFields()) {
    if (field.name == key) return field.read(field, value, plan);
  }
  const std::string known =
      absl::StrJoin(PlanFields(), ", ",
                    [](std::string* out, const Field& field) { absl::StrAppend(out, field.name); });
  return InvalidField(key, value.dump(),
                      absl::StrCat("no such field; known are name, preset, ", known));
}

absl::StatusOr<std::string> TakeString(const char* key, json* object) {
  const auto found = object->find(key);
  if (found == object->end() || !found->is_string() || found->get<std::string>().empty()) {
    return InvalidField(key, found == object->end() ? "unset" : found->dump(), "must be a string");
  }
  std::string value = *found;
  object->erase(found);
  return value;
}

}  // namespace

absl::StatusOr<Setting> ParseSetting(const std::string& line) {
  json fields = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!fields.is_object()) return absl::InvalidArgumentError("is not a JSON object");
  Setting setting;
  ASSIGN_OR_RETURN(setting.name, TakeString("name", &fields));
  setting.overrides = fields;
  ASSIGN_OR_RETURN(const std::string preset, TakeString("preset", &fields));
  ASSIGN_OR_RETURN(setting.plan, FindAttentionPreset(preset));
  for (const auto& [key, value] : fields.items()) {
    RETURN_IF_ERROR(Override(key, value, &setting.plan));
  }
  return setting;
}

absl::StatusOr<std::vector<Setting>> LoadSettings(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, " cannot be read"));
  std::vector<Setting> settings;
  std::set<std::string> names;
  int line_number = 0;
  for (std::string line; std::getline(file, line);) {
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    absl::StatusOr<Setting> setting = ParseSetting(line);
    if (setting.ok() && !names.insert(setting->name).second) {
      setting = InvalidField("name", setting->name, "another line has the same");
    }
    if (!setting.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", line_number, ": ", setting.status().message()));
    }
    settings.push_back(*std::move(setting));
  }
  if (settings.empty()) return absl::InvalidArgumentError(path + " holds no setting");
  return settings;
}

absl::StatusOr<std::vector<Setting>> FilterSettings(const std::vector<Setting>& settings,
                                                    const std::vector<std::string>& patterns) {
  std::vector<bool> chosen(settings.size(), patterns.empty());
  for (const std::string& pattern : patterns) {
    bool matched = false;
    for (size_t i = 0; i < settings.size(); ++i) {
      if (fnmatch(pattern.c_str(), settings[i].name.c_str(), 0) != 0) continue;
      chosen[i] = matched = true;
    }
    if (!matched) {
      return absl::NotFoundError(absl::StrCat("--setting ", pattern, " matches no setting"));
    }
  }
  std::vector<Setting> kept;
  for (size_t i = 0; i < settings.size(); ++i) {
    if (chosen[i]) kept.push_back(settings[i]);
  }
  return kept;
}

}  // namespace sparsed
