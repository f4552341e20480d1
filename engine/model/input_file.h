// SPDX-License-Identifier: Apache-2.0
// InputFile: a regular file opened for reading; the whole of it as a string or as a mapping.
//
//   ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
//   ASSIGN_OR_RETURN(std::string text, file.Read(kMaxConfigBytes));
//
// Owns the descriptor and closes it; a mapping outlives the InputFile. One thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

namespace sparsed {

class InputFile {
 public:
  // NOT_FOUND: no such file. INVALID_ARGUMENT: a folder, pipe or device. PERMISSION_DENIED and the
  // like: as the system says. All name the path.
  static absl::StatusOr<InputFile> Open(const std::string& path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;

  const std::string& path() const { return path_; }
  size_t size() const { return size_; }

  // INVALID_ARGUMENT if the file is larger than `max_bytes`.
  absl::StatusOr<std::string> Read(size_t max_bytes) const;

  // The file's bytes, read-only; unmapped with the last copy of the pointer. size() must not be 0.
  absl::StatusOr<std::shared_ptr<const std::byte>> Map() const;

 private:
  InputFile(std::string path, int descriptor, size_t size);

  std::string path_;
  int descriptor_;  // -1 after a move
  size_t size_;
};

}  // namespace sparsed
