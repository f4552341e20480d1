// SPDX-License-Identifier: Apache-2.0
// ServedModel: what the services know about the loaded model beside its weights.
//
//   ASSIGN_OR_RETURN(ServedModel model, LoadServedModel(dir, engine->model(), "sparsed"));
//   ASSIGN_OR_RETURN(std::vector<int32_t> ids, EncodeText(model, "prompt", "Once upon a time"));
//
// Immutable once made; any thread may read it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "engine/types.h"
#include "sparsed/v1/generation.pb.h"

namespace sparsed {

struct ServedModel {
  ModelInfo info;  // end_tokens completed by the tokenizer's end-of-turn tokens
  std::unique_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<const ChatTemplate> chat_template;  // null: the model has none
  GenerationDefaults defaults;                        // of unset request fields; see ResolveRequest
  std::string default_preset = "dense";
  // A longer text has more than max_length tokens. Known without counting them, which takes
  // hundreds of bytes of memory for one of text.
  size_t max_text_bytes = 0;

  bool IsEndToken(int32_t id) const;
};

// Reads tokenizer.json and, if there, the chat template of tokenizer_config.json. Errors name the
// file; INVALID_ARGUMENT also when the tokenizer knows more tokens than the model.
absl::StatusOr<ServedModel> LoadServedModel(const std::string& model_dir, const ModelInfo& info,
                                            const std::string& default_preset);

// Text as Generate reads a prompt: control tokens written in it stay ordinary text.
// INVALID_ARGUMENT on `field` if it has more than max_text_bytes.
absl::StatusOr<std::vector<int32_t>> EncodeText(const ServedModel& model, const std::string& field,
                                                const std::string& text);

// Messages in the model's chat template, ready for the assistant's turn. INVALID_ARGUMENT on
// "chat.messages": the template refused them, or there is none, or they are too many or too long.
absl::StatusOr<std::vector<int32_t>> EncodeChat(const ServedModel& model, const v1::Chat& chat);

// The text of ids in the model's vocabulary. Checkpoints pad their vocabulary: ids in it that the
// tokenizer has no token for add nothing.
absl::StatusOr<std::string> DecodeText(const ServedModel& model, absl::Span<const int32_t> ids,
                                       bool skip_special);

}  // namespace sparsed
