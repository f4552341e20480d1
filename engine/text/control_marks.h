// SPDX-License-Identifier: Apache-2.0
// ControlMarks: keeps track of control tokens that a user wrote while a chat template moves, trims
// and joins the user's texts.
//
//   const ControlMarks marks(messages, tokenizer.special_tokens());
//   ASSIGN_OR_RETURN(std::string rendered, Render(marks.messages()));
//   const auto [text, plain] = marks.Remove(rendered);
//
// A mark is a character that occurs in none of the messages. It is put behind the first character
// of every control token in a content or role, so that no template takes it for one, and behind
// what could become part of one where a text meets the template's: "<|eot" at its end, "id|>" at
// its start. Messages without such text are not touched, so their rendering cannot change.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/types/span.h>

#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

namespace sparsed {

class ControlMarks {
 public:
  // Copies what it needs. The texts are UTF-8.
  ControlMarks(absl::Span<const ChatMessage> messages, absl::Span<const std::string> controls);

  absl::Span<const ChatMessage> messages() const { return messages_; }

  struct Removed {
    std::string text;                         // without marks
    std::vector<Tokenizer::PlainSpan> plain;  // the marked characters
  };
  Removed Remove(std::string_view rendered) const;

 private:
  std::vector<ChatMessage> messages_;
  std::string mark_;  // one character
};

}  // namespace sparsed
