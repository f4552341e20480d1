// SPDX-License-Identifier: Apache-2.0
// Damaged files: Open never crashes, and whatever it accepts can be read to the last byte.
#include <random>

#include <gtest/gtest.h>

#include "engine/model/safetensors.h"
#include "tests/engine/model/model_files.h"

namespace sparsed {
namespace {

using ::sparsed::testing::Safetensors;
using ::sparsed::testing::TempDir;

std::string ValidFile() {
  return Safetensors(R"({"__metadata__":{"format":"pt"},)"
                     R"("a.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                     R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},)"
                     R"("c":{"dtype":"BOOL","shape":[],"data_offsets":[32,33]}})",
                     std::string(33, '\x2a'));
}

// Every view lies in the file: its bytes are there to read, and all together are no more than it.
void CheckViews(const SafetensorsFile& file, size_t file_bytes) {
  size_t bytes = 0;
  unsigned sum = 0;
  for (const TensorView& view : file.tensors()) {
    bytes += view.bytes;
    for (size_t i = 0; i < view.bytes; ++i) sum += std::to_integer<unsigned>(view.data[i]);
  }
  EXPECT_LE(bytes, file_bytes);
  EXPECT_LE(sum, 255 * bytes);
}

// True if the file was accepted.
bool OpenMutated(const TempDir& dir, const std::string& bytes) {
  const absl::StatusOr<SafetensorsFile> file =
      SafetensorsFile::Open(dir.Write("m.safetensors", bytes));
  if (file.ok()) {
    CheckViews(*file, bytes.size());
  } else {
    EXPECT_NE(file.status().message().find("m.safetensors"), std::string::npos) << file.status();
  }
  return file.ok();
}

TEST(SafetensorsMutationTest, EveryBitFlipOfLengthAndHeaderIsSurvived) {
  const TempDir dir;
  const std::string valid = ValidFile();
  ASSERT_TRUE(OpenMutated(dir, valid));
  for (size_t at = 0; at < valid.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = valid;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
      const bool accepted = OpenMutated(dir, bytes);
      EXPECT_FALSE(at < 8 && accepted) << "header length with bit " << bit << " of " << at;
    }
  }
}

TEST(SafetensorsMutationTest, SeededDamageIsSurvived) {
  constexpr uint32_t kSeed = 20250924;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  const TempDir dir;
  const std::string valid = ValidFile();
  std::mt19937 random(kSeed);
  const auto below = [&random](size_t limit) { return random() % limit; };
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = valid;
    for (size_t edits = 1 + below(4); edits > 0 && !bytes.empty(); --edits) {
      const size_t at = below(bytes.size());
      switch (below(4)) {
        case 0:
          bytes[at] = static_cast<char>(below(256));
          break;
        case 1:  // digits, so that offsets and shapes change and the JSON stays valid
          bytes[at] = static_cast<char>('0' + below(10));
          break;
        case 2:
          bytes.resize(at);
          break;
        default:
          bytes.insert(at, bytes.substr(below(bytes.size()), below(40)));
      }
    }
    OpenMutated(dir, bytes);
  }
}

}  // namespace
}  // namespace sparsed
