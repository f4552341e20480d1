// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/attention_convert.h"

#include <algorithm>
#include <tuple>

#include <absl/strings/str_cat.h>

#include "engine/base/invalid_field.h"
#include "engine/base/status_macros.h"

namespace sparsed {
namespace {

// Largest count in a request: more blocks or steps than any canvas has, and the product of three
// fits 64 bits.
constexpr uint32_t kMaxCount = 1 << 20;

std::string Named(const char* what, const char* name) {
  return absl::StrCat(what, " \"", name, "\"");
}

// The plans that read a field.
struct Readers {
  bool (*include)(const AttentionPlan& plan);
  std::string (*reason)(const AttentionPlan& plan);  // what makes a plan none of them
  const char* who;
};

// Also a plan that still lacks a rule: ValidateAttentionPlan says which.
bool HasRules(const AttentionPlan& plan) {
  return plan.sparse() || plan.select != SelectRule::kNone;
}

bool Ranks(const AttentionPlan& plan) {
  return plan.select == SelectRule::kTopRatio || plan.select == SelectRule::kTopRatioCompat ||
         plan.select == SelectRule::kTopK;
}

bool HasGrid(const AttentionPlan& plan) {
  return plan.reorder == ReorderRule::kFractal || plan.prior == PriorRule::kSta;
}

std::string ItsPreset(const AttentionPlan& plan) {
  return absl::StrCat(Named("preset", plan.preset.c_str()), " and no rules");
}
std::string ItsScore(const AttentionPlan& plan) { return Named("score", RuleName(plan.score)); }
std::string ItsSelect(const AttentionPlan& plan) { return Named("select", RuleName(plan.select)); }
std::string ItsReorder(const AttentionPlan& plan) {
  return Named("reorder", RuleName(plan.reorder));
}
std::string ItsPrior(const AttentionPlan& plan) { return Named("prior", RuleName(plan.prior)); }

constexpr Readers kSparse = {HasRules, ItsPreset, "sparse plans: name a sparse preset"};
constexpr Readers kScored = {[](const AttentionPlan& plan) {
                               return plan.score != ScoreRule::kNone ||
                                      plan.select != SelectRule::kNone;
                             },
                             ItsScore, "plans with a score"};
constexpr Readers kRanking = {Ranks, ItsSelect, R"("top_ratio", "top_ratio_compat" and "top_k")"};
constexpr Readers kByMass = {
    [](const AttentionPlan& plan) { return plan.select == SelectRule::kMass; }, ItsSelect,
    R"("mass")"};
constexpr Readers kSorting = {[](const AttentionPlan& plan) {
                                return plan.reorder == ReorderRule::kNormK ||
                                       plan.reorder == ReorderRule::kNormQK;
                              },
                              ItsReorder, R"("norm_k" and "norm_qk")"};
constexpr Readers kSinkWindow = {
    [](const AttentionPlan& plan) { return plan.prior == PriorRule::kSinkWindow; }, ItsPrior,
    R"("sink_window")"};
constexpr Readers kSta = {[](const AttentionPlan& plan) { return plan.prior == PriorRule::kSta; },
                          ItsPrior, R"("sta")"};
constexpr Readers kVideo = {HasGrid, ItsReorder, R"(reorder "fractal" and prior "sta")"};

// A field of a request and of a plan. Wire: double, uint32_t or bool.
template <class Wire, class Value>
struct Field {
  const char* path;
  const Readers& readers;
  bool (v1::Attention::*has)() const;
  Wire (v1::Attention::*get)() const;
  void (v1::Attention::*set)(Wire);
  Value AttentionPlan::*value;
  const char* limit = "must be at most 1048576";  // said of more than kMaxCount
};
using Real = Field<double, double>;
using Count = Field<uint32_t, int32_t>;
using Flag = Field<bool, bool>;

struct ExtentField {
  const char* path;
  const Readers& readers;
  bool (v1::Attention::*has)() const;
  const v1::Extent3& (v1::Attention::*get)() const;
  v1::Extent3* (v1::Attention::*change)();
  Extent3 AttentionPlan::*value;
  const char* limit = "t, h and w must be at most 1048576";
};

// All fields but the preset and the rules.
const auto& Fields() {
  using A = v1::Attention;
  using P = AttentionPlan;
  static constexpr std::tuple kFields = {
      Real{"attention.ratio", kRanking, &A::has_ratio, &A::ratio, &A::set_ratio, &P::ratio},
      Real{"attention.mass", kByMass, &A::has_mass, &A::mass, &A::set_mass, &P::mass},
      Real{"attention.min_retained_mass", kScored, &A::has_min_retained_mass, &A::min_retained_mass,
           &A::set_min_retained_mass, &P::min_retained_mass},
      Real{"attention.relevant_share", kScored, &A::has_relevant_share, &A::relevant_share,
           &A::set_relevant_share, &P::relevant_share},
      Count{"attention.sink_blocks", kSinkWindow, &A::has_sink_blocks, &A::sink_blocks,
            &A::set_sink_blocks, &P::sink_blocks},
      Count{"attention.window_blocks", kSinkWindow, &A::has_window_blocks, &A::window_blocks,
            &A::set_window_blocks, &P::window_blocks},
      ExtentField{"attention.grid", kVideo, &A::has_grid, &A::grid, &A::mutable_grid, &P::grid},
      ExtentField{"attention.sta_window", kSta, &A::has_sta_window, &A::sta_window,
                  &A::mutable_sta_window, &P::sta_window},
      Count{"attention.sort_blocks", kSorting, &A::has_sort_blocks, &A::sort_blocks,
            &A::set_sort_blocks, &P::sort_blocks},
      Real{"attention.skip", kSparse, &A::has_skip, &A::skip, &A::set_skip, &P::skip},
      Count{"attention.refresh_every", kScored, &A::has_refresh_every, &A::refresh_every,
            &A::set_refresh_every, &P::refresh_every},
      Count{"attention.block_tokens", kSparse, &A::has_block_tokens, &A::block_tokens,
            &A::set_block_tokens, &P::block_tokens, "must be 32, 64, 128 or 256"},
      Flag{"attention.guard", kSparse, &A::has_guard, &A::guard, &A::set_guard, &P::guard},
  };
  return kFields;
}

template <class Visit>
void ForEachField(Visit visit) {
  std::apply([&](const auto&... field) { (visit(field), ...); }, Fields());
}

std::string Shown(double value) { return absl::StrCat(value); }
std::string Shown(uint32_t value) { return absl::StrCat(value); }
std::string Shown(bool value) { return value ? "true" : "false"; }
std::string Shown(const v1::Extent3& extent) {
  return absl::StrCat(extent.t(), "x", extent.h(), "x", extent.w());
}

uint32_t Largest(double /*value*/) { return 0; }
uint32_t Largest(bool /*value*/) { return 0; }
uint32_t Largest(uint32_t value) { return value; }
uint32_t Largest(const v1::Extent3& extent) {
  return std::max({extent.t(), extent.h(), extent.w()});
}

double FromWire(double value) { return value; }
bool FromWire(bool value) { return value; }
int32_t FromWire(uint32_t value) { return static_cast<int32_t>(value); }
Extent3 FromWire(const v1::Extent3& extent) {
  return {FromWire(extent.t()), FromWire(extent.h()), FromWire(extent.w())};
}

template <class AnyField>
absl::Status Override(const AnyField& field, const v1::Attention& asked, AttentionPlan* plan) {
  if (!(asked.*field.has)()) return absl::OkStatus();
  const auto& value = (asked.*field.get)();
  if (Largest(value) > kMaxCount) return InvalidField(field.path, Shown(value), field.limit);
  plan->*field.value = FromWire(value);
  return absl::OkStatus();
}

// A field that is not read would be ignored; the preset's own value (as echoed) is let through.
template <class AnyField>
absl::Status CheckRead(const AnyField& field, const v1::Attention& asked, const AttentionPlan& own,
                       const AttentionPlan& plan) {
  if (!(asked.*field.has)() || field.readers.include(plan) ||
      plan.*field.value == own.*field.value) {
    return absl::OkStatus();
  }
  const Readers& readers = HasRules(plan) ? field.readers : kSparse;
  return InvalidField(
      field.path, Shown((asked.*field.get)()),
      absl::StrCat("has no meaning with ", readers.reason(plan), ": it belongs to ", readers.who));
}

template <class Wire, class Value>
void Echo(const Field<Wire, Value>& field, const AttentionPlan& plan, v1::Attention* echo) {
  (echo->*field.set)(static_cast<Wire>(plan.*field.value));
}

void Echo(const ExtentField& field, const AttentionPlan& plan, v1::Attention* echo) {
  const Extent3& extent = plan.*field.value;
  if (extent == Extent3{}) return;  // unset
  v1::Extent3& echoed = *(echo->*field.change)();
  echoed.set_t(static_cast<uint32_t>(extent.t));
  echoed.set_h(static_cast<uint32_t>(extent.h));
  echoed.set_w(static_cast<uint32_t>(extent.w));
}

absl::Status OverrideRules(const v1::Attention& asked, AttentionPlan* plan) {
  if (asked.has_score()) {
    ASSIGN_OR_RETURN(plan->score, FindScoreRule(asked.score()));
  }
  if (asked.has_select()) {
    ASSIGN_OR_RETURN(plan->select, FindSelectRule(asked.select()));
  }
  if (asked.has_reorder()) {
    ASSIGN_OR_RETURN(plan->reorder, FindReorderRule(asked.reorder()));
  }
  if (asked.has_prior()) {
    ASSIGN_OR_RETURN(plan->prior, FindPriorRule(asked.prior()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AttentionPlan> ResolveAttention(const v1::Attention& asked,
                                               const std::string& default_preset,
                                               int32_t canvas_length) {
  ASSIGN_OR_RETURN(const AttentionPlan own,
                   FindAttentionPreset(asked.has_preset() ? asked.preset() : default_preset));
  AttentionPlan plan = own;
  RETURN_IF_ERROR(OverrideRules(asked, &plan));
  // A dense preset skips all steps, which rules added to it cannot mean.
  if (plan.sparse() && !own.sparse()) plan.skip = 0;
  absl::Status status;  // the first error
  ForEachField([&](const auto& field) { status.Update(Override(field, asked, &plan)); });
  ForEachField([&](const auto& field) { status.Update(CheckRead(field, asked, own, plan)); });
  status.Update(ValidateAttentionPlan(plan, canvas_length));
  RETURN_IF_ERROR(status);
  return plan;
}

v1::Attention EchoAttention(const AttentionPlan& plan) {
  v1::Attention echo;
  echo.set_preset(plan.preset);
  echo.set_score(RuleName(plan.score));
  echo.set_select(RuleName(plan.select));
  echo.set_reorder(RuleName(plan.reorder));
  echo.set_prior(RuleName(plan.prior));
  ForEachField([&](const auto& field) {
    if (field.readers.include(plan)) Echo(field, plan, &echo);
  });
  return echo;
}

}  // namespace sparsed
