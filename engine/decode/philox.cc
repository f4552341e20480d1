// SPDX-License-Identifier: Apache-2.0
#include "engine/decode/philox.h"

namespace sparsed {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

double UniformAt(uint64_t seed, int32_t step, int32_t position, RandomUse use) {
  const std::array<uint32_t, 4> bits = Philox4x32(
      {static_cast<uint32_t>(step), static_cast<uint32_t>(position), static_cast<uint32_t>(use), 0},
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t wide = (static_cast<uint64_t>(bits[0]) << 32 | bits[1]) >> 11;
  return static_cast<double>(wide) * 0x1p-53;
}

}  // namespace sparsed
