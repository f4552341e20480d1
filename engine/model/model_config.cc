// SPDX-License-Identifier: Apache-2.0
#include "engine/model/model_config.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_join.h>

#include "engine/base/concat.h"
#include "engine/base/status_macros.h"
#include "engine/model/json_fields.h"
#include "engine/model/json_file.h"

namespace sparsed {
namespace {

using Json = nlohmann::json;

constexpr JsonLimits kConfigLimits = {.bytes = 1u << 20, .depth = 16, .values = 100'000};

// Far above any real model, low enough that products of two stay exact in 64 bits.
constexpr IntRange kLayers = {1, 1024};
constexpr IntRange kHiddenSize = {1, 65'536};
constexpr IntRange kMlpSize = {1, 1 << 20};
constexpr IntRange kMlpRatio = {1, 64};
constexpr IntRange kVocabulary = {1, 1 << 22};
constexpr IntRange kLength = {1, 1 << 24};
constexpr NumberRange kRopeTheta = {1, 1e12};
constexpr NumberRange kNormEps = {1e-12, 1e-1};
constexpr NumberRange kTemperature = {0, 10};

// A setting of LLaDA's code that has one value here. Where LLaDA's own default for an absent field
// is that value, the field may be absent or null.
struct FixedSetting {
  std::string_view field;
  std::string_view implemented;  // as JSON
  bool may_be_absent;
};
constexpr FixedSetting kFixedSettings[] = {
    {"block_type", "\"llama\"", false},
    {"layer_norm_type", "\"rms\"", false},
    // "swiglu" is not the same: in LLaDA's llama block it would halve the MLP a second time.
    {"activation_type", "\"silu\"", false},
    {"rope", "true", false},
    {"rope_scaling", "null", true},
    {"alibi", "false", true},
    {"attention_layer_norm", "false", true},
    {"include_bias", "false", true},
    {"include_qkv_bias", "false", true},
    {"bias_for_layer_norm", "false", true},
    {"layer_norm_with_affine", "true", true},
    {"input_emb_norm", "false", true},
    {"scale_logits", "false", true},
    {"block_group_size", "1", true},
    {"clip_qkv", "null", true},
    {"quantization_config", "null", true},
};

absl::Status CheckFixedSetting(const JsonFields& fields, const FixedSetting& setting) {
  const Json* value = fields.Find(setting.field);
  if (setting.may_be_absent && (value == nullptr || value->is_null())) return absl::OkStatus();
  const Json implemented = Json::parse(setting.implemented);
  if (value != nullptr && *value == implemented) return absl::OkStatus();
  const bool right_type = value != nullptr && value->type() == implemented.type();
  return fields.Fault(right_type || implemented.is_null() ? absl::StatusCode::kUnimplemented
                                                          : absl::StatusCode::kInvalidArgument,
                      setting.field, Concat("only ", setting.implemented, " is implemented"));
}

void AppendName(std::string* out, std::string_view name) { out->append(name); }

absl::Status CheckFamily(const JsonFields& fields, std::string* family) {
  const std::string limit =
      Concat("supported model families: ", absl::StrJoin(kConfigFamilies, ", ", AppendName));
  const Json* value = fields.Find("model_type");
  if (value == nullptr || !value->is_string()) {
    return fields.Fault(absl::StatusCode::kInvalidArgument, "model_type", limit);
  }
  *family = value->get<std::string>();
  if (std::find(std::begin(kConfigFamilies), std::end(kConfigFamilies), *family) ==
      std::end(kConfigFamilies)) {
    return fields.Fault(absl::StatusCode::kUnimplemented, "model_type", limit);
  }
  return absl::OkStatus();
}

// n_kv_heads and multi_query_attention say the same in two ways; both may be given if they agree.
int32_t ReadKvHeads(JsonFields& fields, int32_t heads) {
  const std::optional<bool> single = fields.OptionalBool("multi_query_attention");
  const std::optional<int32_t> given = fields.OptionalInt("n_kv_heads", {1, heads});
  const int32_t kv_heads = given.value_or(single.value_or(false) ? 1 : heads);
  if (heads % kv_heads != 0) fields.Refuse("n_kv_heads", Concat("must divide n_heads ", heads));
  if (single && kv_heads != (*single ? 1 : heads)) {
    fields.Refuse("multi_query_attention", Concat("contradicts n_kv_heads ", kv_heads));
  }
  return kv_heads;
}

void ReadAttentionShape(JsonFields& fields, ModelConfig& config) {
  config.hidden_size = fields.Int("d_model", kHiddenSize);
  config.heads = fields.Int("n_heads", {1, kHiddenSize.max});
  if (config.hidden_size % config.heads != 0) {
    fields.Refuse("n_heads", Concat("must divide d_model ", config.hidden_size));
  }
  config.kv_heads = ReadKvHeads(fields, config.heads);
  config.head_dim = config.hidden_size / config.heads;
  if (config.head_dim % 2 != 0) {
    fields.Refuse("n_heads", Concat("d_model / n_heads is ", config.head_dim,
                                    ", must be even for rotary positions"));
  }
}

int32_t ReadMlpSize(JsonFields& fields, int32_t hidden_size) {
  const std::optional<int32_t> given = fields.OptionalInt("mlp_hidden_size", kMlpSize);
  if (given) return *given;
  const int32_t ratio = fields.Int("mlp_ratio", kMlpRatio);
  const int32_t size = ratio * hidden_size;
  if (size > kMlpSize.max) {
    fields.Refuse("mlp_ratio",
                  Concat("times d_model ", hidden_size, " must be at most ", kMlpSize.max));
  }
  return size;
}

void ReadTokens(JsonFields& fields, ModelConfig& config) {
  const IntRange ids = {0, config.vocabulary_size - 1};
  config.mask_token = fields.Int("mask_token_id", ids);
  // -1 is how some exports write "none".
  const std::optional<int32_t> pad = fields.OptionalInt("pad_token_id", {-1, ids.max});
  if (pad && *pad >= 0) config.pad_token = pad;
}

// Adds the end tokens of one of the two files.
void ReadEndTokens(JsonFields& fields, ModelConfig& config) {
  constexpr std::string_view kField = "eos_token_id";
  for (const int32_t token : fields.IntOrList(kField, {0, config.vocabulary_size - 1})) {
    if (token == config.mask_token) {
      fields.Refuse(kField, Concat("must not be mask_token_id ", token));
    }
    std::vector<int32_t>& tokens = config.end_tokens;
    if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
  }
}

void ReadShape(JsonFields& fields, ModelConfig& config) {
  config.layers = fields.Int("n_layers", kLayers);
  ReadAttentionShape(fields, config);
  config.mlp_size = ReadMlpSize(fields, config.hidden_size);
  config.vocabulary_size = fields.Int("vocab_size", kVocabulary);
  config.embedding_rows =
      fields.OptionalInt("embedding_size", {config.vocabulary_size, kVocabulary.max})
          .value_or(config.vocabulary_size);
  config.max_length = fields.Int("max_sequence_length", kLength);
  config.rope_theta = fields.Number("rope_theta", kRopeTheta);
  config.rms_norm_eps = fields.Number("rms_norm_eps", kNormEps);
  config.tied_embeddings = fields.OptionalBool("weight_tying").value_or(true);  // LLaDA's default
}

int32_t LargestDivisor(int32_t number, int32_t at_most) {
  int32_t divisor = std::min(number, at_most);
  while (number % divisor != 0) --divisor;
  return divisor;
}

// What is absent follows from what is given, so that the defaults fit together.
void ReadGeneration(JsonFields& fields, ModelConfig& config) {
  GenerationDefaults& generation = config.generation;
  const int32_t length = fields.OptionalInt("gen_length", {1, config.max_length})
                             .value_or(std::min(generation.gen_length, config.max_length));
  const int32_t block_length = fields.OptionalInt("block_length", {1, length})
                                   .value_or(LargestDivisor(length, generation.block_length));
  if (length % block_length != 0) {
    fields.Refuse("block_length", Concat("must divide gen_length ", length));
  }
  const int32_t blocks = std::max(length / block_length, 1);
  const int32_t steps =
      fields.OptionalInt("steps", {1, length})
          .value_or(std::max(std::min(generation.steps, length) / blocks, 1) * blocks);
  if (steps % blocks != 0) {
    fields.Refuse("steps", Concat("must be a multiple of gen_length / block_length = ", blocks));
  }
  const double temperature =
      fields.OptionalNumber("temperature", kTemperature).value_or(generation.temperature);
  generation = {length, steps, block_length, temperature};
}

absl::Status ReadConfig(const std::string& path, ModelConfig& config) {
  ASSIGN_OR_RETURN(const Json document, ReadJsonObject(path, kConfigLimits));
  JsonFields fields(path, document);
  RETURN_IF_ERROR(CheckFamily(fields, &config.family));
  for (const FixedSetting& setting : kFixedSettings) {
    RETURN_IF_ERROR(CheckFixedSetting(fields, setting));
  }
  ReadShape(fields, config);
  ReadTokens(fields, config);
  ReadEndTokens(fields, config);
  return fields.status();
}

// The file may be missing; what the engine then does is the same as for an empty object.
absl::Status ReadGenerationConfig(const std::string& path, ModelConfig& config) {
  absl::StatusOr<Json> document = ReadJsonObject(path, kConfigLimits);
  if (absl::IsNotFound(document.status())) document = Json::object();
  RETURN_IF_ERROR(document.status());
  JsonFields fields(path, *document);
  ReadEndTokens(fields, config);
  ReadGeneration(fields, config);
  return fields.status();
}

}  // namespace

std::string ModelName(const std::string& dir) {
  const std::filesystem::path path = std::filesystem::path(dir).lexically_normal();
  return (path.has_filename() ? path.filename() : path.parent_path().filename()).string();
}

absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& dir) {
  ModelConfig config;
  RETURN_IF_ERROR(ReadConfig(Concat(dir, "/config.json"), config));
  RETURN_IF_ERROR(ReadGenerationConfig(Concat(dir, "/generation_config.json"), config));
  return config;
}

}  // namespace sparsed
