// SPDX-License-Identifier: Apache-2.0
#include "bench/row_tally.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace sparsed {
namespace {

using nlohmann::json;

double Sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// Of nothing: what dense attention has.
double MeanOrOne(const std::vector<double>& values) {
  return values.empty() ? 1 : Sum(values) / static_cast<double>(values.size());
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Microseconds and millionths are below what a run can repeat; fewer digits keep the file small.
double Rounded(double value) { return std::round(value * 1e6) / 1e6; }

}  // namespace

RowTally::RowTally(const Canvas& canvas)
    : prompt_length_(canvas.prompt_length),
      length_(canvas.length()),
      generated_(canvas.tokens.begin() + canvas.prompt_length, canvas.tokens.end()),
      sparse_(generated_.size(), 0) {}

void RowTally::Add(const StepResult& result) {
  const double seconds = result.step_seconds * static_cast<double>(length_) /
                         static_cast<double>(std::max<int64_t>(result.batch_tokens, length_));
  const bool sparse = result.phase == StepPhase::kSparse || result.phase == StepPhase::kRebuild;
  for (const TokenEdit& edit : result.committed) {
    const auto place = static_cast<size_t>(edit.position - prompt_length_);
    generated_[place] = edit.token;
    sparse_[place] = sparse ? 1 : 0;
  }
  (sparse ? sparse_seconds_ : dense_seconds_).push_back(seconds);
  densities_.push_back(result.density);
  batch_rows_.push_back(result.batch_rows);
  if (sparse) {
    sparse_densities_.push_back(result.density);
    retained_mass_.push_back(result.retained_mass.value_or(1));
  }
  if (!result.heads.empty()) {
    heads_.push_back(result.heads);
    build_seconds_.push_back(result.mask_build_seconds);
  }
  if (result.guard != GuardReason::kNone) guard_ = result.guard;
  finished_ = result.finished;
}

absl::Span<const int32_t> RowTally::Answer(const std::vector<int32_t>& end_tokens) const {
  const auto end = std::find_first_of(generated_.begin(), generated_.end(), end_tokens.begin(),
                                      end_tokens.end());
  return absl::MakeSpan(generated_.data(), static_cast<size_t>(end - generated_.begin()));
}

double RowTally::SparseShare(size_t count) const {
  if (count == 0) return 0;
  const auto end = sparse_.begin() + static_cast<std::ptrdiff_t>(count);
  return static_cast<double>(std::count(sparse_.begin(), end, 1)) / static_cast<double>(count);
}

json RowTally::Measures(int32_t layers, bool per_head) const {
  json measures = {{"steps_run", densities_.size()},
                   {"density", Rounded(MeanOrOne(sparse_densities_))},
                   {"mean_density", Rounded(MeanOrOne(densities_))},
                   {"retained_mass", Rounded(MeanOrOne(retained_mass_))},
                   {"seconds", Rounded(Sum(dense_seconds_) + Sum(sparse_seconds_))},
                   {"dense_step_seconds", Rounded(Median(dense_seconds_))},
                   {"sparse_step_seconds", Rounded(Median(sparse_seconds_))},
                   {"mask_build_seconds", Rounded(Sum(build_seconds_))},
                   {"batch_rows", Rounded(MeanOrOne(batch_rows_))},
                   {"guard", GuardReasonName(guard_)}};
  if (heads_.empty()) return measures;
  measures["layer_density"] = Heads(layers, &HeadSparsity::density, false);
  measures["layer_retained_mass"] = Heads(layers, &HeadSparsity::retained_mass, false);
  if (per_head) {
    measures["head_density"] = Heads(layers, &HeadSparsity::density, true);
    measures["head_retained_mass"] = Heads(layers, &HeadSparsity::retained_mass, true);
  }
  return measures;
}

// [layers] or [layers * heads], each the mean over the masks that were built.
json RowTally::Heads(int32_t layers, double HeadSparsity::*field, bool per_head) const {
  const size_t all = heads_.front().size();
  const size_t groups = per_head ? all : static_cast<size_t>(layers);
  const size_t group_heads = all / groups;
  std::vector<double> means(groups, 0);
  for (const std::vector<HeadSparsity>& built : heads_) {
    for (size_t i = 0; i < groups * group_heads; ++i) {
      means[i / group_heads] += built[i].*field;
    }
  }
  for (double& mean : means) {
    mean = Rounded(mean / static_cast<double>(heads_.size() * group_heads));
  }
  return means;
}

}  // namespace sparsed
