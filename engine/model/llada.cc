// SPDX-License-Identifier: Apache-2.0
#include "engine/model/llada.h"

#include <cmath>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

#include <ATen/ATen.h>

#include "engine/base/status_macros.h"
#include "engine/base/torch_guard.h"
#include "engine/model/layers.h"
#include "engine/model/weight_loader.h"
#include "kernels/fused.h"

namespace sparsed {
namespace {

struct Block {
  at::Tensor attn_norm;  // [hidden]
  at::Tensor qkv;        // [(heads + 2 * kv_heads) * head_dim, hidden]
  at::Tensor attn_out;   // [hidden, hidden]
  at::Tensor ff_norm;    // [hidden]
  at::Tensor gate_up;    // [2 * mlp, hidden]
  at::Tensor ff_out;     // [hidden, mlp]
};

struct Weights {
  at::Tensor wte;  // [embedding_rows, hidden]
  std::vector<Block> blocks;
  at::Tensor ln_f;  // [hidden]
  at::Tensor head;  // [vocabulary, hidden]
  RotaryTable rotary;
  int64_t parameters = 0;
  std::vector<std::string> ignored;
};

class Llada final : public DenoisingModel {
 public:
  Llada(ModelConfig config, Weights weights)
      : config_(std::move(config)), weights_(std::move(weights)) {}

  at::Tensor Forward(const at::Tensor& ids, StepAttention* attention) const override {
    at::Tensor x = at::embedding(weights_.wte, ids);
    for (int32_t layer = 0; layer < config_.layers; ++layer) {
      const Block& block = weights_.blocks[static_cast<size_t>(layer)];
      x.add_(Attend(layer, block, x, attention));
      x.add_(FeedForward(block, x, attention->row_offsets()));
    }
    return x;
  }

  at::Tensor Logits(const at::Tensor& hidden) const override {
    const at::Tensor normed = kernels::RmsNorm(hidden, weights_.ln_f, config_.rms_norm_eps);
    return at::mm(normed, weights_.head.t());
  }

  // 1 / sqrt(number of heads): the reference code's slip, kept for parity
  // (sparsed_reference.md 1.4).
  double compat_score_scale() const override { return 1.0 / std::sqrt(double(config_.heads)); }
  int32_t vocabulary_size() const override { return config_.vocabulary_size; }
  int64_t parameters() const override { return weights_.parameters; }
  const std::vector<std::string>& ignored_tensors() const override { return weights_.ignored; }

 private:
  at::Tensor Attend(int32_t layer, const Block& block, const at::Tensor& x,
                    StepAttention* attention) const {
    const at::Tensor& offsets = attention->row_offsets();
    const at::Tensor normed = kernels::RmsNorm(x, block.attn_norm, config_.rms_norm_eps);
    const at::Tensor qkv =
        Linear(normed, block.qkv, offsets)
            .view({x.size(0), config_.heads + 2 * config_.kv_heads, config_.head_dim});
    const at::Tensor q = qkv.narrow(1, 0, config_.heads);
    const at::Tensor k = qkv.narrow(1, config_.heads, config_.kv_heads);
    const at::Tensor v = qkv.narrow(1, config_.heads + config_.kv_heads, config_.kv_heads);
    // q and k lie side by side: one call rotates both.
    kernels::Rope(qkv.narrow(1, 0, config_.heads + config_.kv_heads), weights_.rotary.cos,
                  weights_.rotary.sin, offsets);
    const at::Tensor out = attention->Run(layer, q, k, v);
    return Linear(out.view({x.size(0), config_.hidden_size}), block.attn_out, offsets);
  }

  at::Tensor FeedForward(const Block& block, const at::Tensor& x, const at::Tensor& offsets) const {
    const at::Tensor normed = kernels::RmsNorm(x, block.ff_norm, config_.rms_norm_eps);
    return Linear(kernels::SiluMul(Linear(normed, block.gate_up, offsets)), block.ff_out, offsets);
  }

  const ModelConfig config_;
  const Weights weights_;
};

absl::StatusOr<Block> LoadBlock(const ModelConfig& config, int32_t layer, WeightLoader* loader) {
  const std::string prefix = absl::StrCat("model.transformer.blocks.", layer, ".");
  const auto name = [&prefix](const char* leaf) { return absl::StrCat(prefix, leaf, ".weight"); };
  const int64_t hidden = config.hidden_size;
  const int64_t query_rows = int64_t{config.heads} * config.head_dim;
  const int64_t key_rows = int64_t{config.kv_heads} * config.head_dim;
  const int64_t mlp = config.mlp_size;
  Block block;
  ASSIGN_OR_RETURN(block.attn_norm, loader->Load(name("attn_norm"), {hidden}));
  ASSIGN_OR_RETURN(block.qkv, loader->LoadStacked({{name("q_proj"), query_rows},
                                                   {name("k_proj"), key_rows},
                                                   {name("v_proj"), key_rows}},
                                                  hidden));
  ASSIGN_OR_RETURN(block.attn_out, loader->Load(name("attn_out"), {hidden, query_rows}));
  ASSIGN_OR_RETURN(block.ff_norm, loader->Load(name("ff_norm"), {hidden}));
  ASSIGN_OR_RETURN(block.gate_up,
                   loader->LoadStacked({{name("ff_proj"), mlp}, {name("up_proj"), mlp}}, hidden));
  ASSIGN_OR_RETURN(block.ff_out, loader->Load(name("ff_out"), {hidden, mlp}));
  return block;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DenoisingModel>> LoadLlada(const ModelConfig& config,
                                                          const Checkpoint& checkpoint,
                                                          const WeightTarget& target) {
  WeightLoader loader(checkpoint, target);
  const int64_t hidden = config.hidden_size;
  Weights weights;
  ASSIGN_OR_RETURN(weights.wte,
                   loader.Load("model.transformer.wte.weight", {config.embedding_rows, hidden}));
  for (int32_t layer = 0; layer < config.layers; ++layer) {
    ASSIGN_OR_RETURN(Block block, LoadBlock(config, layer, &loader));
    weights.blocks.push_back(std::move(block));
  }
  ASSIGN_OR_RETURN(weights.ln_f, loader.Load("model.transformer.ln_f.weight", {hidden}));
  at::Tensor head = weights.wte;
  if (!config.tied_embeddings) {
    ASSIGN_OR_RETURN(
        head, loader.Load("model.transformer.ff_out.weight", {config.embedding_rows, hidden}));
  }
  weights.parameters = loader.parameters();
  weights.ignored = loader.Ignored();
  RETURN_IF_ERROR(TorchGuard([&] {
    weights.head = head.narrow(0, 0, config.vocabulary_size);
    weights.rotary = MakeRotaryTable(config.max_length, config.head_dim, config.rope_theta);
    weights.rotary.cos = weights.rotary.cos.to(target.device);
    weights.rotary.sin = weights.rotary.sin.to(target.device);
  }));
  return std::make_unique<Llada>(config, std::move(weights));
}

}  // namespace sparsed
