// SPDX-License-Identifier: Apache-2.0
// Checkpoint: the weights of a Hugging Face model folder, one file or many shards, by tensor name.
//
//   ASSIGN_OR_RETURN(Checkpoint weights, Checkpoint::Open("models/demo-llada-17m"));
//   ASSIGN_OR_RETURN(TensorView wte,
//                    weights.Require("model.transformer.wte.weight", {4096, 384}));
//
// Reads `model.safetensors`, else the shards that `model.safetensors.index.json` lists (the order
// in which Hugging Face looks). Shards stay inside the folder: their names are plain file names.
// Ownership: views keep their shard mapped, also beyond the Checkpoint. Immutable after Open; any
// thread may use it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <absl/status/statusor.h>
#include <absl/types/span.h>

#include "engine/model/safetensors.h"

namespace sparsed {

class Checkpoint {
 public:
  // NOT_FOUND: no folder, no weights in it, or a shard that the index lists is missing.
  // DATA_LOSS: a truncated file, or a shard without a tensor that the index promises.
  // INVALID_ARGUMENT: a broken index or file. All name the file, and the tensor where one is wrong.
  static absl::StatusOr<Checkpoint> Open(const std::string& dir);

  // The tensor, or null. The pointer lives as long as this object; a copy of the view longer.
  const TensorView* Find(std::string_view name) const;

  // A weight of exactly this shape in F32, F16 or BF16. NOT_FOUND: no such tensor.
  // INVALID_ARGUMENT: another shape or dtype. Messages name tensor, file, expected and found.
  absl::StatusOr<TensorView> Require(std::string_view name, absl::Span<const int64_t> shape) const;

  // File a tensor lies in; "" if there is no such tensor.
  std::string_view FileOf(std::string_view name) const;

  // Names, sorted, of the tensors in the files that `known` lacks, those that the index does not
  // list included: a caller warns about them.
  std::vector<std::string> Unknown(const absl::flat_hash_set<std::string>& known) const;

  int64_t total_bytes() const { return total_bytes_; }  // of all tensors that Find finds
  size_t tensor_count() const { return tensors_.size(); }

 private:
  struct Place {
    size_t file;
    size_t tensor;
  };
  Checkpoint() = default;
  static absl::StatusOr<Checkpoint> OpenSingle(const std::string& path);
  static absl::StatusOr<Checkpoint> OpenShards(const std::string& dir, const std::string& index);
  void Add(Place place);

  std::string source_;  // the single file or the index, for messages
  std::vector<SafetensorsFile> files_;
  absl::flat_hash_map<std::string, Place> tensors_;
  int64_t total_bytes_ = 0;
};

}  // namespace sparsed
