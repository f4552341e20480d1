// SPDX-License-Identifier: Apache-2.0
// C++ manners for the C border of engine/text/hf/hf_text.h: views in, owners out, status.
//
//   HfOwner<HfIds, hf_ids_free> ids;
//   RETURN_IF_ERROR(HfCall("text", hf_tokenizer_encode(handle, HfView(text), …, ids.out())));
#pragma once

#include <string>
#include <string_view>

#include <absl/status/status.h>

#include "engine/base/concat.h"
#include "engine/text/hf/hf_text.h"

namespace sparsed {

inline HfText HfView(std::string_view text) { return {text.data(), text.size()}; }

// Holds one owned result and frees it.
template <class Result, void (*kFree)(Result)>
class HfOwner {
 public:
  HfOwner() = default;
  ~HfOwner() { kFree(result_); }
  HfOwner(const HfOwner&) = delete;
  HfOwner& operator=(const HfOwner&) = delete;

  Result* out() { return &result_; }
  auto begin() const { return result_.data; }
  auto end() const { return result_.data + result_.size; }
  size_t size() const { return result_.size; }

 private:
  Result result_{};
};

using HfOwnedBytes = HfOwner<HfBytes, hf_bytes_free>;
using HfOwnedIds = HfOwner<HfIds, hf_ids_free>;
using HfOwnedMatches = HfOwner<HfMatches, hf_matches_free>;

inline std::string_view HfString(const HfOwnedBytes& bytes) {
  return {bytes.begin(), bytes.size()};
}

// The status of a call, after freeing its message. `subject` (a path, "text") opens the message.
inline absl::Status HfCall(std::string_view subject, HfStatus result) {
  HfOwnedBytes message;
  *message.out() = result.message;
  if (result.code == HF_OK) return absl::OkStatus();
  const std::string words = Concat(subject, ": ", HfString(message));
  if (result.code == HF_INVALID) return absl::InvalidArgumentError(words);
  return absl::InternalError(words);
}

}  // namespace sparsed
