// SPDX-License-Identifier: Apache-2.0
// MaskArena: hands out ranges of the one preallocated buffer that holds every request's BlockMasks
// on a device.
//
//   ASSIGN_OR_RETURN(MaskHandle mask, arena.Reserve(bytes));  // RESOURCE_EXHAUSTED: asked, free,
//   budget Use(mask.offset_words());
//   // ~MaskHandle gives the bytes back: finish, cancel and failure need no code of their own
//
// It keeps the books only; the buffer itself belongs to the engine. The budget is never exceeded.
// Any thread may reserve, free and read the counters; who frees a range must know that no step
// reads it any more (the engine frees between steps). The arena outlives its handles.
#pragma once

#include <cstdint>
#include <map>

#include <absl/base/thread_annotations.h>
#include <absl/status/statusor.h>

#include "engine/base/mutex.h"

namespace sparsed {

class MaskArena;

// A reserved range. Movable; empty after a move and by default.
class MaskHandle {
 public:
  MaskHandle() = default;
  ~MaskHandle();
  MaskHandle(MaskHandle&& other) noexcept;
  MaskHandle& operator=(MaskHandle&& other) noexcept;

  int64_t offset_words() const { return offset_bytes_ / 4; }  // of uint32 words
  int64_t bytes() const { return bytes_; }                    // as reserved, 0 = empty

 private:
  friend class MaskArena;
  MaskHandle(MaskArena* arena, int64_t offset_bytes, int64_t bytes)
      : arena_(arena), offset_bytes_(offset_bytes), bytes_(bytes) {}

  MaskArena* arena_ = nullptr;
  int64_t offset_bytes_ = 0;
  int64_t bytes_ = 0;
};

class MaskArena {
 public:
  // Ranges start at multiples of this, so that a mask never shares a cache line with another.
  static constexpr int64_t kAlignmentBytes = 64;

  explicit MaskArena(int64_t budget_bytes);
  MaskArena(const MaskArena&) = delete;
  MaskArena& operator=(const MaskArena&) = delete;

  // First fit. RESOURCE_EXHAUSTED: no free range is large enough now; a larger request than the
  // whole budget says so. INVALID_ARGUMENT: not a positive number of bytes.
  absl::StatusOr<MaskHandle> Reserve(int64_t bytes);

  int64_t used_bytes() const;
  int64_t budget_bytes() const { return budget_bytes_; }

 private:
  friend class MaskHandle;
  void Free(int64_t offset_bytes, int64_t bytes);

  const int64_t budget_bytes_;
  mutable Mutex mutex_;
  std::map<int64_t, int64_t> free_ ABSL_GUARDED_BY(mutex_);  // offset -> bytes; never adjacent
  int64_t used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sparsed
