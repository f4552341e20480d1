// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/served_model.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

#include "engine/base/invalid_field.h"
#include "engine/base/status_macros.h"

namespace sparsed {
namespace {

// Instruction-tuned models end a turn with one of these, which their config.json often leaves out.
constexpr const char* kEndOfTurnTokens[] = {"<|eot_id|>", "<|im_end|>", "<|endoftext|>"};

void AddEndOfTurnTokens(const Tokenizer& tokenizer, std::vector<int32_t>* end_tokens) {
  for (const char* token : kEndOfTurnTokens) {
    const std::optional<int32_t> id = tokenizer.TokenId(token);
    if (id && tokenizer.IsSpecial(*id)) end_tokens->push_back(*id);
  }
  std::sort(end_tokens->begin(), end_tokens->end());
  end_tokens->erase(std::unique(end_tokens->begin(), end_tokens->end()), end_tokens->end());
}

size_t MaxTextBytes(const Tokenizer& tokenizer, int32_t max_length) {
  // Tokens are made of normalised text, and Unicode's NFC can shrink a text to a third (Hangul).
  constexpr size_t kBytesPerNormalisedByte = 3;
  size_t longest = 1;
  for (int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    longest = std::max(longest, tokenizer.TokenBytes(id).size());
  }
  return static_cast<size_t>(max_length) * longest * kBytesPerNormalisedByte;
}

absl::Status CheckTextBytes(const ServedModel& model, const std::string& field, size_t bytes) {
  if (bytes <= model.max_text_bytes) return absl::OkStatus();
  return InvalidField(field, absl::StrCat(bytes, " bytes long"),
                      absl::StrCat("must be at most ", model.max_text_bytes,
                                   ", which more than fills max_length ", model.info.max_length));
}

absl::Status CheckChatSize(const ServedModel& model, const v1::Chat& chat) {
  if (chat.messages_size() > model.info.max_length) {
    return InvalidField("chat.messages", absl::StrCat(chat.messages_size(), " messages"),
                        absl::StrCat("must be at most max_length ", model.info.max_length));
  }
  size_t bytes = 0;
  for (const v1::ChatMessage& message : chat.messages()) {
    bytes += message.role().size() + message.content().size();
  }
  return CheckTextBytes(model, "chat.messages", bytes);
}

}  // namespace

bool ServedModel::IsEndToken(int32_t id) const {
  return std::binary_search(info.end_tokens.begin(), info.end_tokens.end(), id);
}

absl::StatusOr<ServedModel> LoadServedModel(const std::string& model_dir, const ModelInfo& info,
                                            const std::string& default_preset) {
  ServedModel model;
  model.info = info;
  model.default_preset = default_preset;
  model.defaults = info.generation;
  // A short-context model keeps room for a prompt.
  model.defaults.gen_length = std::clamp(info.max_length / 2, 1, model.defaults.gen_length);
  const std::string tokenizer_path = model_dir + "/tokenizer.json";
  ASSIGN_OR_RETURN(model.tokenizer, Tokenizer::Load(tokenizer_path));
  if (model.tokenizer->vocabulary_size() > info.vocabulary_size) {
    return absl::InvalidArgumentError(
        absl::StrCat(tokenizer_path, " knows ", model.tokenizer->vocabulary_size(),
                     " tokens, the model only ", info.vocabulary_size));
  }
  AddEndOfTurnTokens(*model.tokenizer, &model.info.end_tokens);
  model.max_text_bytes = MaxTextBytes(*model.tokenizer, info.max_length);
  absl::StatusOr<std::unique_ptr<ChatTemplate>> chat_template =
      ChatTemplate::Load(model_dir + "/tokenizer_config.json");
  if (chat_template.ok()) {
    model.chat_template = *std::move(chat_template);
  } else if (!absl::IsNotFound(chat_template.status())) {
    return chat_template.status();
  }
  return model;
}

absl::StatusOr<std::vector<int32_t>> EncodeText(const ServedModel& model, const std::string& field,
                                                const std::string& text) {
  RETURN_IF_ERROR(CheckTextBytes(model, field, text.size()));
  return model.tokenizer->Encode(text, ControlTokens::kAsText, /*add_special=*/true);
}

absl::StatusOr<std::vector<int32_t>> EncodeChat(const ServedModel& model, const v1::Chat& chat) {
  if (model.chat_template == nullptr) {
    return InvalidField("chat", "set", "this model has no chat template; use prompt");
  }
  RETURN_IF_ERROR(CheckChatSize(model, chat));
  std::vector<ChatMessage> messages;
  messages.reserve(static_cast<size_t>(chat.messages_size()));
  for (const v1::ChatMessage& message : chat.messages()) {
    messages.push_back({message.role(), message.content()});
  }
  auto ids =
      model.chat_template->Encode(messages, /*add_generation_prompt=*/true, *model.tokenizer);
  if (absl::IsInvalidArgument(ids.status())) {
    return InvalidField("chat.messages", "refused", std::string(ids.status().message()));
  }
  return ids;
}

absl::StatusOr<std::string> DecodeText(const ServedModel& model, absl::Span<const int32_t> ids,
                                       bool skip_special) {
  std::vector<int32_t> known;
  known.reserve(ids.size());
  for (const int32_t id : ids) {
    if (id < model.tokenizer->vocabulary_size()) known.push_back(id);
  }
  return model.tokenizer->Decode(known, skip_special);
}

}  // namespace sparsed
