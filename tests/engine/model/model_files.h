// SPDX-License-Identifier: Apache-2.0
// Builders for model folders that tests write, broken ones included.
//   TempDir dir;
//   dir.Write("model.safetensors", Safetensors(R"({"a":{…}})", data));
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdlib.h>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace sparsed::testing {

// A fresh folder, removed with its contents at the end of the scope.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "sparsed_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "cannot make " << pattern;
    path_ = pattern;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  std::string path() const { return path_.string(); }
  std::string File(std::string_view name) const { return (path_ / name).string(); }

  // The path of the file, which now has these bytes.
  std::string Write(std::string_view name, std::string_view bytes) const {
    // A new file each time: the old one may still be mapped, and rewriting it in place is slow.
    std::filesystem::remove(path_ / name);
    std::ofstream file(path_ / name, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!file.good()) ADD_FAILURE() << "cannot write " << name;
    return File(name);
  }

 private:
  std::filesystem::path path_;
};

inline std::string LittleEndian64(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

// A .safetensors file: header length, header, data.
inline std::string Safetensors(std::string_view header, std::string_view data) {
  return LittleEndian64(header.size()) + std::string(header) + std::string(data);
}

}  // namespace sparsed::testing
