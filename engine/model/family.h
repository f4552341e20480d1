// SPDX-License-Identifier: Apache-2.0
// A model family: how its checkpoints load and how its forward runs. Adding one is a file like
// llada.cc and a line in families.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/types/span.h>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "engine/attention/step_attention.h"
#include "engine/model/checkpoint.h"
#include "engine/model/model_config.h"

namespace sparsed {

// A loaded network. Immutable; one thread at a time runs it. Forward and Logits throw what LibTorch
// throws.
class DenoisingModel {
 public:
  virtual ~DenoisingModel() = default;

  // ids [tokens] int64, packed as attention.row_offsets() says -> hidden states [tokens,
  // hidden_size] fp32, before the final norm. Row r's result does not depend on the other rows, bit
  // for bit.
  virtual at::Tensor Forward(const at::Tensor& ids, StepAttention* attention) const = 0;

  // Hidden states of the chosen positions [n, hidden_size] -> logits [n, vocabulary_size] fp32.
  virtual at::Tensor Logits(const at::Tensor& hidden) const = 0;

  // Logit scale with which the family's published SparseD code scores blocks.
  virtual double compat_score_scale() const = 0;

  virtual int32_t vocabulary_size() const = 0;
  virtual int64_t parameters() const = 0;
  virtual const std::vector<std::string>& ignored_tensors()
      const = 0;  // in the files, not in the model
};

struct WeightTarget {
  at::Device device = at::kCPU;
  // Called with the share of all weight bytes done; false abandons the load.
  std::function<bool(double share)> progress = {};
};

struct Family {
  std::string_view model_type;  // config.json's
  absl::StatusOr<std::unique_ptr<DenoisingModel>> (*load)(const ModelConfig& config,
                                                          const Checkpoint& checkpoint,
                                                          const WeightTarget& target);
};

// The list is families.cc.
absl::Span<const Family> Families();

}  // namespace sparsed
