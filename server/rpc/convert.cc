// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/convert.h"

#include <algorithm>
#include <random>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>

#include "engine/base/invalid_field.h"
#include "engine/base/status_macros.h"
#include "server/rpc/attention_convert.h"

namespace sparsed {
namespace {

constexpr size_t kMaxRequestIdLength = 128;

absl::Status CheckRequestId(const std::string& id) {
  if (id.size() > kMaxRequestIdLength) {
    return InvalidField("request_id", absl::StrCat(id.size(), " characters long"),
                        absl::StrCat("must be at most ", kMaxRequestIdLength));
  }
  for (size_t i = 0; i < id.size(); ++i) {
    const auto c = static_cast<unsigned char>(id[i]);
    if (absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-') continue;
    return InvalidField("request_id", absl::StrCat("not a name at character ", i),
                        "may only hold A-Z a-z 0-9 . _ -");
  }
  return absl::OkStatus();
}

absl::Status CheckInput(const v1::GenerateRequest& request) {
  switch (request.input_case()) {
    case v1::GenerateRequest::kPrompt:
      if (!request.prompt().empty()) return absl::OkStatus();
      return InvalidField("prompt", "empty", "must hold text to continue");
    case v1::GenerateRequest::kChat:
      if (request.chat().messages_size() > 0) return absl::OkStatus();
      return InvalidField("chat.messages", "empty", "must hold at least one message");
    case v1::GenerateRequest::kTokenIds:
      if (request.token_ids().ids_size() > 0) return absl::OkStatus();
      return InvalidField("token_ids.ids", "empty", "must hold at least one id");
    case v1::GenerateRequest::INPUT_NOT_SET:
      break;
  }
  return InvalidField("input", "unset", "must be one of prompt, chat or token_ids");
}

// The path that errors about the prompt as a whole name.
const char* InputPath(const v1::GenerateRequest& request) {
  if (request.has_chat()) return "chat.messages";
  return request.has_token_ids() ? "token_ids.ids" : "prompt";
}

absl::StatusOr<std::vector<int32_t>> CheckPromptIds(const v1::TokenIds& ids,
                                                    const ModelInfo& info) {
  ASSIGN_OR_RETURN(std::vector<int32_t> prompt,
                   CheckTokenIds(ids.ids(), info.vocabulary_size, "token_ids.ids"));
  const auto mask = std::find(prompt.begin(), prompt.end(), info.mask_token);
  if (mask == prompt.end()) return prompt;
  return InvalidField(absl::StrCat("token_ids.ids[", mask - prompt.begin(), "]"), info.mask_token,
                      "the mask id cannot be part of a prompt");
}

absl::StatusOr<int32_t> ResolveGenLength(const v1::GenerateRequest& request, size_t prompt_tokens,
                                         const ServedModel& model) {
  const auto max_length = static_cast<size_t>(model.info.max_length);
  if (prompt_tokens == 0) return InvalidField(InputPath(request), "empty", "makes no token");
  if (prompt_tokens >= max_length) {
    return InvalidField(InputPath(request), absl::StrCat(prompt_tokens, " tokens long"),
                        absl::StrCat("must be below max_length ", max_length));
  }
  const size_t room = max_length - prompt_tokens;
  const v1::Decoding& asked = request.decoding();
  const size_t gen_length =
      asked.has_gen_length() ? asked.gen_length() : static_cast<size_t>(model.defaults.gen_length);
  if (gen_length >= 1 && gen_length <= room) return static_cast<int32_t>(gen_length);
  return InvalidField("decoding.gen_length", gen_length,
                      absl::StrCat("must be in 1..", room, " (max_length ", max_length, " - ",
                                   prompt_tokens, " prompt tokens)"));
}

absl::StatusOr<int32_t> ResolveBlockLength(const v1::Decoding& asked, int32_t gen_length,
                                           const GenerationDefaults& defaults) {
  if (!asked.has_block_length()) {
    int32_t length = std::min(defaults.block_length, gen_length);
    while (gen_length % length != 0) --length;
    return length;
  }
  const uint32_t length = asked.block_length();
  const auto whole = static_cast<uint32_t>(gen_length);
  if (length >= 1 && length <= whole && whole % length == 0) return static_cast<int32_t>(length);
  return InvalidField("decoding.block_length", length,
                      absl::StrCat("must divide gen_length ", gen_length));
}

absl::StatusOr<int32_t> ResolveSteps(const v1::Decoding& asked, int32_t gen_length,
                                     int32_t block_length, const GenerationDefaults& defaults) {
  const int32_t blocks = gen_length / block_length;
  if (!asked.has_steps()) {
    const int32_t most = std::min(defaults.steps, gen_length);
    return std::max(most / blocks, 1) * blocks;
  }
  const uint32_t steps = asked.steps();
  const auto whole = static_cast<uint32_t>(gen_length);
  if (steps >= 1 && steps <= whole && steps % static_cast<uint32_t>(blocks) == 0) {
    return static_cast<int32_t>(steps);
  }
  return InvalidField("decoding.steps", steps,
                      absl::StrCat("must be in ", blocks, "..", gen_length, " and a multiple of ",
                                   blocks, ", the number of blocks (gen_length ", gen_length,
                                   " / block_length ", block_length, "); each block needs a step"));
}

absl::StatusOr<Remasking> ResolveRemasking(v1::Remasking asked) {
  switch (asked) {
    case v1::REMASKING_UNSPECIFIED:
    case v1::REMASKING_LOW_CONFIDENCE:
      return Remasking::kLowConfidence;
    case v1::REMASKING_RANDOM:
      return Remasking::kRandom;
    default:
      return InvalidField("decoding.remasking", static_cast<int>(asked),
                          "must be a value of enum Remasking");
  }
}

absl::Status CheckRange(const char* field, double value, double high) {
  // Written so that NaN fails.
  if (value >= 0 && value <= high) return absl::OkStatus();
  return InvalidField(field, value, absl::StrCat("must be in 0..", high));
}

absl::StatusOr<DecodePolicy> ResolvePolicy(const v1::Decoding& asked, int32_t gen_length,
                                           const ServedModel& model) {
  DecodePolicy policy;
  ASSIGN_OR_RETURN(policy.block_length, ResolveBlockLength(asked, gen_length, model.defaults));
  ASSIGN_OR_RETURN(policy.steps,
                   ResolveSteps(asked, gen_length, policy.block_length, model.defaults));
  ASSIGN_OR_RETURN(policy.remasking, ResolveRemasking(asked.remasking()));
  policy.temperature = asked.has_temperature() ? asked.temperature() : model.defaults.temperature;
  RETURN_IF_ERROR(CheckRange("decoding.temperature", policy.temperature, kMaxTemperature));
  policy.cfg_scale = asked.cfg_scale();
  RETURN_IF_ERROR(CheckRange("decoding.cfg_scale", policy.cfg_scale, kMaxCfgScale));
  // 32 bits, so that an echoed seed survives JSON readers that hold numbers as doubles.
  policy.seed = asked.has_seed() ? asked.seed() : std::random_device()();
  if (!asked.has_stop_on_end() || asked.stop_on_end()) policy.end_tokens = model.info.end_tokens;
  return policy;
}

v1::Resolved DescribeDefaults(const ServedModel& model) {
  v1::Resolved resolved;
  v1::Decoding& decoding = *resolved.mutable_decoding();
  decoding.set_gen_length(static_cast<uint32_t>(model.defaults.gen_length));
  decoding.set_steps(static_cast<uint32_t>(model.defaults.steps));
  decoding.set_block_length(static_cast<uint32_t>(model.defaults.block_length));
  decoding.set_remasking(v1::REMASKING_LOW_CONFIDENCE);
  decoding.set_temperature(model.defaults.temperature);
  decoding.set_cfg_scale(0);
  decoding.set_stop_on_end(true);
  // The name was checked with the configuration.
  if (const auto plan = FindAttentionPreset(model.default_preset); plan.ok()) {
    *resolved.mutable_attention() = EchoAttention(*plan);
  }
  return resolved;
}

}  // namespace

absl::Status CheckRequest(const v1::GenerateRequest& request) {
  RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  RETURN_IF_ERROR(CheckInput(request));
  const v1::Streaming& streaming = request.streaming();
  if (streaming.has_every_steps() && streaming.every_steps() == 0) {
    return InvalidField("streaming.every_steps", 0, "must be at least 1");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> EncodeInput(const v1::GenerateRequest& request,
                                                 const ServedModel& model) {
  if (request.has_chat()) return EncodeChat(model, request.chat());
  if (request.has_token_ids()) return CheckPromptIds(request.token_ids(), model.info);
  return EncodeText(model, "prompt", request.prompt());
}

absl::StatusOr<Request> ResolveRequest(const v1::GenerateRequest& request,
                                       std::vector<int32_t> prompt, const ServedModel& model) {
  ASSIGN_OR_RETURN(const int32_t gen_length, ResolveGenLength(request, prompt.size(), model));
  Request resolved;
  ASSIGN_OR_RETURN(resolved.policy, ResolvePolicy(request.decoding(), gen_length, model));
  ASSIGN_OR_RETURN(resolved.attention,
                   ResolveAttention(request.attention(), model.default_preset,
                                    static_cast<int32_t>(prompt.size()) + gen_length));
  resolved.canvas = Canvas::FromPrompt(std::move(prompt), gen_length, model.info.mask_token);
  resolved.want_provisional = request.streaming().provisional();
  return resolved;
}

absl::StatusOr<std::vector<int32_t>> CheckTokenIds(
    const google::protobuf::RepeatedField<uint32_t>& ids, int32_t vocabulary_size,
    const std::string& field) {
  std::vector<int32_t> checked;
  checked.reserve(static_cast<size_t>(ids.size()));
  for (const uint32_t id : ids) {
    if (id >= static_cast<uint32_t>(vocabulary_size)) {
      return InvalidField(absl::StrCat(field, "[", checked.size(), "]"), id,
                          absl::StrCat("must be below vocabulary_size ", vocabulary_size));
    }
    checked.push_back(static_cast<int32_t>(id));
  }
  return checked;
}

v1::Resolved EchoResolved(const Request& request) {
  v1::Resolved resolved;
  v1::Decoding& decoding = *resolved.mutable_decoding();
  const DecodePolicy& policy = request.policy;
  decoding.set_gen_length(static_cast<uint32_t>(request.canvas.generation_length()));
  decoding.set_steps(static_cast<uint32_t>(policy.steps));
  decoding.set_block_length(static_cast<uint32_t>(policy.block_length));
  decoding.set_remasking(policy.remasking == Remasking::kRandom ? v1::REMASKING_RANDOM
                                                                : v1::REMASKING_LOW_CONFIDENCE);
  decoding.set_temperature(policy.temperature);
  decoding.set_seed(policy.seed);
  decoding.set_cfg_scale(policy.cfg_scale);
  decoding.set_stop_on_end(!policy.end_tokens.empty());
  *resolved.mutable_attention() = EchoAttention(request.attention);
  return resolved;
}

v1::GetModelResponse DescribeModel(const ServedModel& model) {
  v1::GetModelResponse response;
  const ModelInfo& info = model.info;
  response.set_name(info.name);
  response.set_family(info.family);
  response.set_layers(static_cast<uint32_t>(info.layers));
  response.set_heads(static_cast<uint32_t>(info.heads));
  response.set_kv_heads(static_cast<uint32_t>(info.kv_heads));
  response.set_head_dim(static_cast<uint32_t>(info.head_dim));
  response.set_parameters(static_cast<uint64_t>(info.parameters));
  response.set_vocabulary_size(static_cast<uint32_t>(info.vocabulary_size));
  response.set_max_length(static_cast<uint32_t>(info.max_length));
  response.set_mask_token(static_cast<uint32_t>(info.mask_token));
  for (const int32_t id : info.end_tokens) response.add_end_tokens(static_cast<uint32_t>(id));
  response.set_dtype(info.dtype);
  response.set_device(info.device);
  response.set_chat_template(model.chat_template != nullptr);
  for (const AttentionPreset& preset : AttentionPresets()) {
    v1::Preset& described = *response.add_presets();
    described.set_name(preset.plan.preset);
    described.set_description(preset.description);
    *described.mutable_attention() = EchoAttention(preset.plan);
  }
  *response.mutable_defaults() = DescribeDefaults(model);
  return response;
}

}  // namespace sparsed
