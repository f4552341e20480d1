// SPDX-License-Identifier: Apache-2.0
// Tokenizer: a Hugging Face tokenizer.json, exactly as the `tokenizers` library runs it.
//
//   ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::Load(dir + "/tokenizer.json"));
//   ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer->Encode(text, ControlTokens::kAsText));
//
// Immutable after Load; any thread may use it. Input that is not UTF-8 is INVALID_ARGUMENT and
// names the byte offset. Nothing throws; a panic of the Rust library is INTERNAL.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/types/span.h>

struct HfTokenizer;  // engine/text/hf/hf_text.h

namespace sparsed {

// What special tokens (such as <|eot_id|>) written inside a text become.
enum class ControlTokens {
  kAsText,     // ordinary text: for anything a user wrote
  kRecognise,  // their ids: for text that a template made, and for parity tests
};

class Tokenizer {
 public:
  // NOT_FOUND: no such file. INVALID_ARGUMENT: not a tokenizer.json, or not of the byte-level kind
  // (whose tokens are bytes, which TokenBytes needs). All name the path.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& path);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // add_special: let the file's post-processor add its tokens (for LLaDA-style files
  // <|startoftext|>).
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, ControlTokens control,
                                              bool add_special = false) const;

  // Text a chat template rendered: control tokens of the template are recognised, while those that
  // touch a `plain` span (byte ranges [begin, end) of `text`, ascending, not empty) stay ordinary
  // text.
  struct PlainSpan {
    size_t begin;
    size_t end;
  };
  absl::StatusOr<std::vector<int32_t>> EncodeRendered(std::string_view text,
                                                      absl::Span<const PlainSpan> plain) const;

  // Ids outside the vocabulary are INVALID_ARGUMENT; ids inside it that have no token decode to "".
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids, bool skip_special) const;

  // The raw bytes a token adds to the text; may end inside a UTF-8 character. Special tokens and
  // unknown ids: "". Concatenated over a canvas in position order they spell its text.
  std::string TokenBytes(int32_t id) const;

  std::optional<int32_t> TokenId(std::string_view token) const;
  bool IsSpecial(int32_t id) const;
  // The special tokens as text, e.g. "<|eot_id|>"; in id order, alive as long as this.
  absl::Span<const std::string> special_tokens() const;
  int32_t vocabulary_size() const;  // highest id + 1, added tokens included

 private:
  struct Tables;
  Tokenizer(HfTokenizer* handle, std::unique_ptr<Tables> tables);
  HfTokenizer* const handle_;
  const std::unique_ptr<Tables> tables_;
};

// Utf8Assembler: turns token bytes that arrive in order into valid UTF-8 text, as soon as it can.
// Invalid bytes become U+FFFD per maximal invalid part, as Python's and Hugging Face's decoders do.
class Utf8Assembler {
 public:
  std::string Push(std::string_view bytes);  // what may be emitted now
  std::string Flush();                       // the rest; an unfinished character becomes U+FFFD

 private:
  std::string pending_;
};

// Byte offset of the first invalid UTF-8 byte, or nothing.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

}  // namespace sparsed
