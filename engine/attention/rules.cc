// SPDX-License-Identifier: Apache-2.0
#include "engine/attention/rules.h"

#include <iterator>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "engine/base/invalid_field.h"

namespace sparsed {
namespace {

template <class Rule>
struct Named {
  Rule rule;
  const char* name;
};

constexpr Named<ScoreRule> kScores[] = {{ScoreRule::kNone, "none"},
                                        {ScoreRule::kPooledMass, "pooled_mass"},
                                        {ScoreRule::kMean, "mean"},
                                        {ScoreRule::kMeanCov, "mean_cov"}};
constexpr Named<SelectRule> kSelects[] = {{SelectRule::kNone, "none"},
                                          {SelectRule::kTopRatio, "top_ratio"},
                                          {SelectRule::kTopRatioCompat, "top_ratio_compat"},
                                          {SelectRule::kTopK, "top_k"},
                                          {SelectRule::kMass, "mass"}};
constexpr Named<ReorderRule> kReorders[] = {{ReorderRule::kNone, "none"},
                                            {ReorderRule::kNormK, "norm_k"},
                                            {ReorderRule::kNormQK, "norm_qk"},
                                            {ReorderRule::kFractal, "fractal"}};
constexpr Named<PriorRule> kPriors[] = {
    {PriorRule::kNone, "none"}, {PriorRule::kSinkWindow, "sink_window"}, {PriorRule::kSta, "sta"}};

template <class Rule, size_t kCount>
const char* NameOf(const Named<Rule> (&table)[kCount], Rule rule) {
  for (const Named<Rule>& entry : table) {
    if (entry.rule == rule) return entry.name;
  }
  return "unknown";
}

template <class Rule, size_t kCount>
absl::StatusOr<Rule> Find(const Named<Rule> (&table)[kCount], const char* field,
                          std::string_view name) {
  for (const Named<Rule>& entry : table) {
    if (entry.name == name) return entry.rule;
  }
  const std::string known = absl::StrJoin(
      table, ", ",
      [](std::string* out, const Named<Rule>& entry) { absl::StrAppend(out, entry.name); });
  return InvalidField(field, absl::StrCat("\"", std::string(name), "\""),
                      absl::StrCat("must be one of ", known));
}

}  // namespace

const char* RuleName(ScoreRule rule) { return NameOf(kScores, rule); }
const char* RuleName(SelectRule rule) { return NameOf(kSelects, rule); }
const char* RuleName(ReorderRule rule) { return NameOf(kReorders, rule); }
const char* RuleName(PriorRule rule) { return NameOf(kPriors, rule); }

absl::StatusOr<ScoreRule> FindScoreRule(std::string_view name) {
  return Find(kScores, "attention.score", name);
}
absl::StatusOr<SelectRule> FindSelectRule(std::string_view name) {
  return Find(kSelects, "attention.select", name);
}
absl::StatusOr<ReorderRule> FindReorderRule(std::string_view name) {
  return Find(kReorders, "attention.reorder", name);
}
absl::StatusOr<PriorRule> FindPriorRule(std::string_view name) {
  return Find(kPriors, "attention.prior", name);
}

}  // namespace sparsed
