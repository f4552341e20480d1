// SPDX-License-Identifier: Apache-2.0
// ChatTemplate: the Jinja chat template of a tokenizer_config.json, rendered as Hugging Face
// renders it (trim_blocks, lstrip_blocks, no escaping; tojson, raise_exception, strftime_now).
//
//   ASSIGN_OR_RETURN(auto chat, ChatTemplate::Load(dir + "/tokenizer_config.json"));
//   ASSIGN_OR_RETURN(std::vector<int32_t> ids, chat->Encode(messages, true, *tokenizer));
//
// Immutable after Load; any thread may use it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/types/span.h>

#include "engine/text/tokenizer.h"

struct HfTemplate;  // engine/text/hf/hf_text.h

namespace sparsed {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", or what the template knows
  std::string content;
};

class ChatTemplate {
 public:
  // Reads chat_template (or, beside the file, chat_template.jinja), bos_token, eos_token and the
  // other named special tokens. NOT_FOUND: no file, or a file without a template. INVALID_ARGUMENT:
  // broken JSON or a template with a syntax error. All name the path.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Load(const std::string& path);

  // special_tokens: name -> text, e.g. {"bos_token", "<|startoftext|>"}; visible to the template.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> FromSource(
      std::string_view source,
      const std::vector<std::pair<std::string, std::string>>& special_tokens);

  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // INVALID_ARGUMENT: the template refused the messages (its own words) or ran out of its step
  // budget.
  absl::StatusOr<std::string> Render(absl::Span<const ChatMessage> messages,
                                     bool add_generation_prompt) const;

  // Render, then tokenise so that control tokens inside message contents and roles stay ordinary
  // text.
  absl::StatusOr<std::vector<int32_t>> Encode(absl::Span<const ChatMessage> messages,
                                              bool add_generation_prompt,
                                              const Tokenizer& tokenizer) const;

 private:
  explicit ChatTemplate(HfTemplate* handle);
  HfTemplate* const handle_;
};

}  // namespace sparsed
