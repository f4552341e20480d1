// SPDX-License-Identifier: Apache-2.0
#include "engine/text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "engine/base/concat.h"
#include "engine/base/status_macros.h"
#include "engine/model/input_file.h"
#include "engine/text/byte_level.h"
#include "engine/text/hf_call.h"

namespace sparsed {
namespace {

// Above any vocabulary in use (about 2^18), and keeps the tables of a hostile file small.
constexpr uint64_t kMaxIds = uint64_t{1} << 24;
constexpr size_t kMaxFileBytes = size_t{256} << 20;

using HandleOwner = std::unique_ptr<HfTokenizer, void (*)(HfTokenizer*)>;

absl::StatusOr<HandleOwner> OpenTokenizer(const std::string& path) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  ASSIGN_OR_RETURN(const std::string json, file.Read(kMaxFileBytes));
  HfTokenizer* handle = nullptr;
  RETURN_IF_ERROR(HfCall(path, hf_tokenizer_new(HfView(json), &handle)));
  return HandleOwner(handle, hf_tokenizer_free);
}

absl::Status CheckUtf8(std::string_view subject, std::string_view text) {
  const std::optional<size_t> at = FindInvalidUtf8(text);
  if (!at) return absl::OkStatus();
  return absl::InvalidArgumentError(Concat(subject, " is not UTF-8 at byte ", *at));
}

absl::Status CheckSpans(std::string_view text, absl::Span<const Tokenizer::PlainSpan> plain) {
  size_t end = 0;
  for (const Tokenizer::PlainSpan& span : plain) {
    if (span.begin < end || span.end <= span.begin || span.end > text.size()) {
      return absl::InvalidArgumentError(Concat("plain span [", span.begin, ", ", span.end,
                                               "): must be not empty, begin at byte ", end,
                                               " or later and end by byte ", text.size()));
    }
    end = span.end;
  }
  return absl::OkStatus();
}

bool Overlaps(absl::Span<const Tokenizer::PlainSpan> plain, size_t begin, size_t end) {
  const auto first_after = std::partition_point(
      plain.begin(), plain.end(), [&](const auto& span) { return span.end <= begin; });
  return first_after != plain.end() && first_after->begin < end;
}

}  // namespace

// What decoding asks per id, so that it needs no call into Rust.
struct Tokenizer::Tables {
  std::string bytes;               // of all tokens, one after another
  std::vector<size_t> ends;        // per id, in `bytes`
  std::vector<bool> special;       // per id
  std::vector<std::string> names;  // of the special tokens

  absl::Status Add(const HfTokenizer* handle, uint32_t id);
};

absl::Status Tokenizer::Tables::Add(const HfTokenizer* handle, uint32_t id) {
  HfOwnedBytes text;
  int32_t kind = HF_TOKEN_NONE;
  RETURN_IF_ERROR(HfCall("token", hf_tokenizer_token(handle, id, text.out(), &kind)));
  const std::string_view token = HfString(text);
  if (kind == HF_TOKEN_PIECE) {
    const std::optional<std::string> piece = BytesOfPiece(token);
    bytes.append(piece ? *piece : token);
  } else if (kind == HF_TOKEN_ADDED) {
    bytes.append(token);
  } else if (kind == HF_TOKEN_SPECIAL) {
    names.emplace_back(token);
  }
  ends.push_back(bytes.size());
  special.push_back(kind == HF_TOKEN_SPECIAL);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& path) {
  ASSIGN_OR_RETURN(HandleOwner handle, OpenTokenizer(path));
  uint64_t id_limit = 0;
  RETURN_IF_ERROR(HfCall(path, hf_tokenizer_id_limit(handle.get(), &id_limit)));
  if (id_limit == 0 || id_limit > kMaxIds) {
    return absl::InvalidArgumentError(
        Concat(path, ": vocabulary size is ", id_limit, ": must be in 1..", kMaxIds));
  }
  auto tables = std::make_unique<Tables>();
  for (uint32_t id = 0; id < id_limit; ++id) RETURN_IF_ERROR(tables->Add(handle.get(), id));
  return std::unique_ptr<Tokenizer>(new Tokenizer(handle.release(), std::move(tables)));
}

Tokenizer::Tokenizer(HfTokenizer* handle, std::unique_ptr<Tables> tables)
    : handle_(handle), tables_(std::move(tables)) {}

Tokenizer::~Tokenizer() { hf_tokenizer_free(handle_); }

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view text, ControlTokens control,
                                                       bool add_special) const {
  RETURN_IF_ERROR(CheckUtf8("text", text));
  const bool recognise = control == ControlTokens::kRecognise;
  HfOwnedIds ids;
  RETURN_IF_ERROR(HfCall(
      "text", hf_tokenizer_encode(handle_, HfView(text), recognise, add_special, ids.out())));
  return std::vector<int32_t>(ids.begin(), ids.end());
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::EncodeRendered(
    std::string_view text, absl::Span<const PlainSpan> plain) const {
  RETURN_IF_ERROR(CheckUtf8("rendered text", text));
  RETURN_IF_ERROR(CheckSpans(text, plain));
  HfOwnedMatches matches;
  RETURN_IF_ERROR(
      HfCall("rendered text", hf_tokenizer_find_special(handle_, HfView(text), matches.out())));

  std::vector<int32_t> ids;
  size_t section = 0;  // start of the text after the last control token
  const auto append_section = [&](size_t end) -> absl::Status {
    if (section == end) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::vector<int32_t> section_ids,
                     Encode(text.substr(section, end - section), ControlTokens::kAsText));
    ids.insert(ids.end(), section_ids.begin(), section_ids.end());
    return absl::OkStatus();
  };
  for (const HfMatch& match : matches) {
    if (Overlaps(plain, match.core_begin, match.core_end)) continue;
    RETURN_IF_ERROR(append_section(match.begin));
    ids.push_back(static_cast<int32_t>(match.id));
    section = match.end;
  }
  RETURN_IF_ERROR(append_section(text.size()));
  return ids;
}

absl::StatusOr<std::string> Tokenizer::Decode(absl::Span<const int32_t> ids,
                                              bool skip_special) const {
  std::vector<uint32_t> unsigned_ids;
  unsigned_ids.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocabulary_size()) {
      return absl::InvalidArgumentError(
          Concat("ids[", i, "] is ", ids[i], ": must be in 0..", vocabulary_size() - 1));
    }
    unsigned_ids.push_back(static_cast<uint32_t>(ids[i]));
  }
  HfOwnedBytes text;
  RETURN_IF_ERROR(
      HfCall("ids", hf_tokenizer_decode(handle_, unsigned_ids.data(), unsigned_ids.size(),
                                        skip_special, text.out())));
  return std::string(HfString(text));
}

std::string Tokenizer::TokenBytes(int32_t id) const {
  if (id < 0 || id >= vocabulary_size()) return "";
  const auto index = static_cast<size_t>(id);
  const size_t begin = index == 0 ? 0 : tables_->ends[index - 1];
  return tables_->bytes.substr(begin, tables_->ends[index] - begin);
}

std::optional<int32_t> Tokenizer::TokenId(std::string_view token) const {
  int64_t id = -1;
  const absl::Status found = HfCall("token", hf_tokenizer_token_id(handle_, HfView(token), &id));
  if (!found.ok() || id < 0) return std::nullopt;
  return static_cast<int32_t>(id);
}

bool Tokenizer::IsSpecial(int32_t id) const {
  return id >= 0 && id < vocabulary_size() && tables_->special[static_cast<size_t>(id)];
}

absl::Span<const std::string> Tokenizer::special_tokens() const { return tables_->names; }

int32_t Tokenizer::vocabulary_size() const { return static_cast<int32_t>(tables_->ends.size()); }

}  // namespace sparsed
