// SPDX-License-Identifier: Apache-2.0
#include "engine/attention/mask_arena.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <absl/strings/str_cat.h>

namespace sparsed {
namespace {

int64_t RoundUpToAlignment(int64_t bytes) {
  return (bytes + MaskArena::kAlignmentBytes - 1) / MaskArena::kAlignmentBytes *
         MaskArena::kAlignmentBytes;
}

}  // namespace

MaskHandle::~MaskHandle() {
  if (arena_ != nullptr) arena_->Free(offset_bytes_, bytes_);
}

MaskHandle::MaskHandle(MaskHandle&& other) noexcept { *this = std::move(other); }

MaskHandle& MaskHandle::operator=(MaskHandle&& other) noexcept {
  std::swap(arena_, other.arena_);
  std::swap(offset_bytes_, other.offset_bytes_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MaskArena::MaskArena(int64_t budget_bytes)
    : budget_bytes_(budget_bytes / kAlignmentBytes * kAlignmentBytes) {
  if (budget_bytes_ > 0) free_[0] = budget_bytes_;
}

absl::StatusOr<MaskHandle> MaskArena::Reserve(int64_t bytes) {
  if (bytes <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("mask of ", bytes, " bytes: must be positive"));
  }
  if (bytes > budget_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "mask of ", bytes, " bytes exceeds the whole mask budget of ", budget_bytes_, " bytes"));
  }
  const int64_t rounded = RoundUpToAlignment(bytes);
  MutexLock lock(&mutex_);
  const auto fit = std::find_if(free_.begin(), free_.end(),
                                [rounded](const auto& range) { return range.second >= rounded; });
  if (fit == free_.end()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("mask of ", bytes, " bytes: ", budget_bytes_ - used_bytes_,
                     " bytes are free of a budget of ", budget_bytes_));
  }
  const auto [offset, available] = *fit;
  free_.erase(fit);
  if (available > rounded) free_[offset + rounded] = available - rounded;
  used_bytes_ += rounded;
  return MaskHandle(this, offset, bytes);
}

int64_t MaskArena::used_bytes() const {
  MutexLock lock(&mutex_);
  return used_bytes_;
}

void MaskArena::Free(int64_t offset_bytes, int64_t bytes) {
  const int64_t rounded = RoundUpToAlignment(bytes);
  MutexLock lock(&mutex_);
  used_bytes_ -= rounded;
  auto range = free_.emplace(offset_bytes, rounded).first;
  const auto next = std::next(range);
  if (next != free_.end() && range->first + range->second == next->first) {
    range->second += next->second;
    free_.erase(next);
  }
  if (range == free_.begin()) return;
  const auto previous = std::prev(range);
  if (previous->first + previous->second == range->first) {
    previous->second += range->second;
    free_.erase(range);
  }
}

}  // namespace sparsed
