// SPDX-License-Identifier: Apache-2.0
// DemoEngine: a FakeEngine that says it is models/demo-llada-17m, behind a StepGate, so that the
// real tokenizer fits it.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tests/server/rpc/step_gate.h"
#include "tests/support/fake_engine.h"

namespace sparsed::testing {

inline std::string DemoModelDir() {
  return std::string(SPARSED_SOURCE_DIR) + "/models/demo-llada-17m";
}

inline ModelInfo DemoModelInfo() {
  ModelInfo info;
  info.name = "demo-llada-17m";
  info.family = "llada";
  info.layers = 8;
  info.heads = 6;
  info.kv_heads = 6;
  info.head_dim = 64;
  info.vocabulary_size = 4096;
  info.max_length = 4096;
  info.mask_token = 2;
  info.end_tokens = {1};
  info.dtype = "float32";
  info.device = "cpu";
  return info;
}

class DemoEngine final : public Engine {
 public:
  explicit DemoEngine(const FakeEngineOptions& options = {}, ModelInfo info = DemoModelInfo())
      : info_(std::move(info)), fake_(WithLayersOf(info_, options)) {
    fake_.on_step = [this](absl::Span<const RequestId>) { gate_.Enter(); };
  }

  // What Validate says, or does; unset: OK.
  std::function<absl::Status(const Request&)> validate;

  StepGate& gate() { return gate_; }
  // Before the first request.
  void SetGuard(GuardReason reason) { fake_.guard = reason; }

  const ModelInfo& model() const override { return info_; }
  EngineLoad load() const override { return fake_.load(); }
  absl::Status Validate(const Request& request) const override {
    return validate ? validate(request) : fake_.Validate(request);
  }
  int64_t MaskBytes(const Request& request) const override { return fake_.MaskBytes(request); }
  absl::StatusOr<RequestId> Admit(Request request) override {
    return fake_.Admit(std::move(request));
  }
  std::vector<StepResult> Step(absl::Span<const RequestId> rows) override {
    return fake_.Step(rows);
  }
  void Cancel(RequestId id) override { fake_.Cancel(id); }

 private:
  static FakeEngineOptions WithLayersOf(const ModelInfo& info, FakeEngineOptions options) {
    options.layers = info.layers;
    options.heads = info.heads;
    return options;
  }

  const ModelInfo info_;
  StepGate gate_;
  FakeEngine fake_;
};

}  // namespace sparsed::testing
