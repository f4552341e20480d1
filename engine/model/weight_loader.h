// SPDX-License-Identifier: Apache-2.0
// WeightLoader: a checkpoint's tensors as fp32 on a device, one by one, with progress.
//
//   WeightLoader loader(checkpoint, target);
//   ASSIGN_OR_RETURN(at::Tensor wte, loader.Load("model.transformer.wte.weight", {rows, width}));
//
// Copies out of the memory-mapped file, so the mapping may go afterwards. One thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_set.h>
#include <absl/status/statusor.h>
#include <absl/types/span.h>

#include <ATen/core/Tensor.h>

#include "engine/model/checkpoint.h"
#include "engine/model/family.h"

namespace sparsed {

class WeightLoader {
 public:
  WeightLoader(const Checkpoint& checkpoint, const WeightTarget& target)
      : checkpoint_(checkpoint), target_(target) {}

  // Errors of Checkpoint::Require; CANCELLED when progress said stop.
  absl::StatusOr<at::Tensor> Load(std::string_view name, absl::Span<const int64_t> shape);

  // Several [out_i, in] matrices stacked to [sum out_i, in], so that one GEMM serves them all.
  struct Part {
    std::string name;
    int64_t rows;
  };
  absl::StatusOr<at::Tensor> LoadStacked(const std::vector<Part>& parts, int64_t width);

  int64_t parameters() const { return parameters_; }  // loaded so far
  std::vector<std::string> Ignored() const { return checkpoint_.Unknown(loaded_); }

 private:
  const Checkpoint& checkpoint_;
  const WeightTarget& target_;
  absl::flat_hash_set<std::string> loaded_;
  int64_t bytes_ = 0;
  int64_t parameters_ = 0;
};

}  // namespace sparsed
