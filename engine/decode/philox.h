// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). A number depends on (seed, step, position, use) alone, so it is the same
// whatever else is in the batch. Pure functions; any thread.
#pragma once

#include <array>
#include <cstdint>

namespace sparsed {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// What a number is drawn for; keeps independent uses apart.
enum class RandomUse : uint32_t { kToken = 0, kOrder = 1 };

// Uniform in [0, 1), 53 bits.
double UniformAt(uint64_t seed, int32_t step, int32_t position, RandomUse use);

}  // namespace sparsed
