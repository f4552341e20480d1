// SPDX-License-Identifier: Apache-2.0
#include "engine/model/input_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <absl/strings/str_cat.h>

namespace sparsed {

InputFile::InputFile(std::string path, int descriptor, size_t size)
    : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot open"));
  InputFile file(path, descriptor, 0);
  struct stat info;
  if (fstat(descriptor, &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot read its size"));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  file.size_ = static_cast<size_t>(info.st_size);
  return file;
}

absl::StatusOr<std::string> InputFile::Read(size_t max_bytes) const {
  if (size_ > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": size is ", size_, " bytes: must be at most ", max_bytes));
  }
  std::string text(size_, '\0');
  size_t done = 0;
  while (done < size_) {
    const ssize_t got =
        pread(descriptor_, text.data() + done, size_ - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": cannot read"));
    if (got == 0) return absl::DataLossError(absl::StrCat(path_, ": became shorter while read"));
    done += static_cast<size_t>(got);
  }
  return text;
}

absl::StatusOr<std::shared_ptr<const std::byte>> InputFile::Map() const {
  void* const address = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor_, 0);
  if (address == MAP_FAILED) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": cannot map ", size_, " bytes"));
  }
  return std::shared_ptr<const std::byte>(
      static_cast<const std::byte*>(address),
      [address, size = size_](const std::byte*) { munmap(address, size); });
}

}  // namespace sparsed
