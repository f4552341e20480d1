// SPDX-License-Identifier: Apache-2.0
// Where golden data is found: $SPARSED_GOLDEN_DIR (the whole set) or tests/golden (a subset of it).
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace sparsed::testing {

// Folder of the golden data this run uses.
inline std::filesystem::path GoldenDir() {
  const char* dir = std::getenv("SPARSED_GOLDEN_DIR");
  if (dir != nullptr && *dir != '\0') return dir;
  return std::filesystem::path(SPARSED_SOURCE_DIR) / "tests/golden";
}

// True when the whole set is at hand; cases outside the subset then must exist.
inline bool WholeGoldenSet() {
  return std::filesystem::exists(GoldenDir() / "sparsed/L777.safetensors");
}

// The file, or nothing if this run has only the subset and the file is not in it.
inline std::optional<std::filesystem::path> FindGolden(const std::string& name) {
  std::filesystem::path path = GoldenDir() / name;
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path;
}

}  // namespace sparsed::testing

// Path of a golden file inside a test body; skips the test when only the subset is there.
#define GOLDEN_OR_SKIP(variable, name)                                                           \
  const auto variable##_found = ::sparsed::testing::FindGolden(name);                            \
  if (!variable##_found) {                                                                       \
    ASSERT_FALSE(::sparsed::testing::WholeGoldenSet()) << "missing golden file " << (name);      \
    GTEST_SKIP() << "golden file " << (name) << " is not in the subset; set SPARSED_GOLDEN_DIR"; \
  }                                                                                              \
  const std::filesystem::path variable = *variable##_found
