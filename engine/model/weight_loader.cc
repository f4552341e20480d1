// SPDX-License-Identifier: Apache-2.0
#include "engine/model/weight_loader.h"

#include <cstring>

#include <ATen/ATen.h>

#include "engine/base/status_macros.h"
#include "engine/base/torch_guard.h"

namespace sparsed {
namespace {

at::ScalarType ScalarTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kF16:
      return at::kHalf;
    default:
      return at::kFloat;  // Checkpoint::Require lets only these three pass
  }
}

}  // namespace

absl::StatusOr<at::Tensor> WeightLoader::Load(std::string_view name,
                                              absl::Span<const int64_t> shape) {
  ASSIGN_OR_RETURN(const TensorView view, checkpoint_.Require(name, shape));
  at::Tensor weight;
  RETURN_IF_ERROR(TorchGuard([&] {
    at::Tensor stored = at::empty(view.shape, at::dtype(ScalarTypeOf(view.dtype)));
    std::memcpy(stored.mutable_data_ptr(), view.data, view.bytes);  // the file may be unaligned
    weight = stored.to(target_.device).to(at::kFloat);
  }));
  loaded_.insert(view.name);
  bytes_ += static_cast<int64_t>(view.bytes);
  parameters_ += weight.numel();
  const double share = static_cast<double>(bytes_) / static_cast<double>(checkpoint_.total_bytes());
  if (target_.progress && !target_.progress(share))
    return absl::CancelledError("model load was abandoned");
  return weight;
}

absl::StatusOr<at::Tensor> WeightLoader::LoadStacked(const std::vector<Part>& parts,
                                                     int64_t width) {
  std::vector<at::Tensor> loaded;
  for (const Part& part : parts) {
    ASSIGN_OR_RETURN(at::Tensor weight, Load(part.name, {part.rows, width}));
    loaded.push_back(std::move(weight));
  }
  at::Tensor stacked;
  RETURN_IF_ERROR(TorchGuard([&] { stacked = at::cat(loaded, 0); }));
  return stacked;
}

}  // namespace sparsed
