// SPDX-License-Identifier: Apache-2.0
// Engine: denoising steps over admitted requests, without a network.
//
//   ASSIGN_OR_RETURN(auto engine, LoadEngine({.model_dir = "models/demo-llada-17m"}));
//   RETURN_IF_ERROR(engine->Validate(request));
//   ASSIGN_OR_RETURN(RequestId id, engine->Admit(std::move(request)));
//   while (engine->load().rows > 0)
//     for (const StepResult& result : engine->Step({id})) Use(result);
//
// Owns weights, the mask arena and every admitted row. Admit, Step and Cancel belong to one thread
// (the step loop); the const methods may be called from any. A row's memory is freed when its
// StepResult says finished or failed, or by Cancel. The abstract class exists so that a server can
// be tested without one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/types/span.h>

#include "engine/types.h"

namespace sparsed {

struct EngineOptions {
  std::string model_dir;                          // Hugging Face folder
  int64_t mask_budget_bytes = int64_t{64} << 20;  // mask arena, preallocated
  int32_t max_rows = 8;                           // admitted requests
  int32_t threads = 0;                            // intra-operator threads; 0 = all cores
  std::string device = "cpu";                     // "cpu" or "cuda"
  // Times dense and sparse attention while loading, in under a second, so that requests that sparse
  // attention would not make faster run dense (AttentionPlan::guard). Off: none is guarded.
  bool guard = true;
  // Called while weights load, with shares of all bytes in [0, 1]; never after LoadEngine returned.
  // Returning false abandons the load with CANCELLED (a signal arrived).
  std::function<bool(double share)> on_progress = {};
};

class Engine {
 public:
  virtual ~Engine() = default;

  virtual const ModelInfo& model() const = 0;
  virtual EngineLoad load() const = 0;

  // OK if Admit can ever accept the request. INVALID_ARGUMENT names field, value and limit
  // (base/invalid_field.h); RESOURCE_EXHAUSTED if its mask alone exceeds the whole budget.
  virtual absl::Status Validate(const Request& request) const = 0;

  // Mask arena bytes the request will hold while it runs; 0 for a dense one.
  virtual int64_t MaskBytes(const Request& request) const = 0;

  // Takes the request and reserves its row and mask. RESOURCE_EXHAUSTED: no row or too few mask
  // bytes are free now. After an error there is nothing to undo.
  virtual absl::StatusOr<RequestId> Admit(Request request) = 0;

  // One denoising step of the given rows, in one forward. Results in the order of `rows`; one
  // failing row does not touch the others. Ids that are not admitted get a NOT_FOUND result.
  virtual std::vector<StepResult> Step(absl::Span<const RequestId> rows) = 0;

  // Releases a row and its mask. Unknown ids are ignored.
  virtual void Cancel(RequestId id) = 0;
};

// INVALID_ARGUMENT / NOT_FOUND / DATA_LOSS name the file and the tensor that is wrong.
absl::StatusOr<std::unique_ptr<Engine>> LoadEngine(const EngineOptions& options);

}  // namespace sparsed
