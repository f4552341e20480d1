// SPDX-License-Identifier: Apache-2.0
// ModelConfig: what config.json and generation_config.json of a Hugging Face folder say.
//
//   ASSIGN_OR_RETURN(ModelConfig config, LoadModelConfig("models/demo-llada-17m"));
//   config.heads;  // 6
//
// Every number is checked, so that a ModelConfig is safe to size tensors with. A setting of the
// file that this engine does not implement is an error, never ignored: it would give wrong text.
// A plain value; no ownership, no threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "engine/types.h"

namespace sparsed {

struct ModelConfig {
  std::string family;           // "llada"
  int32_t layers = 0;           // n_layers
  int32_t hidden_size = 0;      // d_model
  int32_t heads = 0;            // n_heads; divides hidden_size
  int32_t kv_heads = 0;         // n_kv_heads or multi_query_attention; divides heads
  int32_t head_dim = 0;         // hidden_size / heads; even
  int32_t mlp_size = 0;         // mlp_hidden_size, or mlp_ratio * d_model
  int32_t vocabulary_size = 0;  // vocab_size: token ids are below it
  int32_t embedding_rows = 0;   // embedding_size >= vocab_size: rows of embedding and head
  int32_t max_length = 0;       // max_sequence_length: prompt + generation, in tokens
  double rope_theta = 0;
  double rms_norm_eps = 0;
  bool tied_embeddings = false;  // weight_tying: the head is the embedding matrix
  int32_t mask_token = 0;        // never one of end_tokens
  std::optional<int32_t> pad_token;
  std::vector<int32_t> end_tokens;  // eos_token_id of both files, in file order, each once
  GenerationDefaults generation;    // generation_config.json over the engine's defaults
};

// Families whose config.json is understood here: values of model_type.
inline constexpr std::string_view kConfigFamilies[] = {"llada"};

// What a model is called: the last component of its folder's path.
std::string ModelName(const std::string& dir);

// Reads DIR/config.json and, if there is one, DIR/generation_config.json.
// NOT_FOUND: no config.json. UNIMPLEMENTED: another model_type (names the supported ones), or a
// setting that is not implemented. INVALID_ARGUMENT: broken JSON or a value out of range. Messages
// name file, field, value and limit.
absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& dir);

}  // namespace sparsed
