// SPDX-License-Identifier: Apache-2.0
// RowTally: what one generation's StepResults add up to.
//
//   RowTally tally(request.canvas);
//   while (!tally.finished()) tally.Add(engine->Step({id})[0]);
//   file.Append(key, tally.Measures(engine->model().layers, /*per_head=*/false));
//
// Times are the row's share of its steps' wall time, by canvas tokens: of a row that runs alone,
// all.
#pragma once

#include <cstdint>
#include <vector>

#include <absl/types/span.h>
#include <nlohmann/json.hpp>

#include "engine/types.h"

namespace sparsed {

class RowTally {
 public:
  explicit RowTally(const Canvas& canvas);

  // A result whose status is OK.
  void Add(const StepResult& result);

  bool finished() const { return finished_; }

  // Tokens of the generation part before the first end token.
  absl::Span<const int32_t> Answer(const std::vector<int32_t>& end_tokens) const;

  // Share of the first `count` generated tokens that sparse steps committed; 0 of none. An answer
  // that dense steps gave says nothing about the mask.
  double SparseShare(size_t count) const;

  // Keys and units: docs/fidelity.md, "Result lines".
  nlohmann::json Measures(int32_t layers, bool per_head) const;

 private:
  nlohmann::json Heads(int32_t layers, double HeadSparsity::*field, bool per_head) const;

  const int32_t prompt_length_;
  const int32_t length_;
  std::vector<int32_t> generated_;  // [generation length] the mask id where still open
  std::vector<uint8_t> sparse_;     // [generation length] 1 = committed in a sparse step
  bool finished_ = false;
  GuardReason guard_ = GuardReason::kNone;
  std::vector<double> densities_;                 // [steps run]
  std::vector<double> sparse_densities_;          // [sparse steps run]
  std::vector<double> retained_mass_;             // [sparse steps run]
  std::vector<double> dense_seconds_;             // [dense steps run]
  std::vector<double> sparse_seconds_;            // [sparse steps run]
  std::vector<double> build_seconds_;             // [steps that built a mask]
  std::vector<double> batch_rows_;                // [steps run]
  std::vector<std::vector<HeadSparsity>> heads_;  // [steps that built a mask][layers * heads]
};

}  // namespace sparsed
