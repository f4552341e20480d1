// SPDX-License-Identifier: Apache-2.0
// Block patterns that depend on positions only, the same for every head, as mask words
// [query_blocks * ceil(key_blocks / 32)] int32 on the CPU (block_mask.h). Unite one with a mask by
// bitwise or. Throws c10::ValueError naming the argument.
#pragma once

#include <ATen/core/Tensor.h>

namespace sparsed::kernels {

// The first `sinks` key blocks, and those at most `window` away from the query block's own.
at::Tensor SinkWindowMask(int64_t blocks, int64_t sinks, int64_t window);

// Sliding tile attention on a grid of t x h x w tiles (t-major): key tile (a, b, c) of query tile
// (x, y, z) where |a - x| <= window_t / 2 (rounded down) and likewise for h and w; clipped at the
// borders. An even window acts as the next odd one, as in the NABLA reference code.
at::Tensor StaMask(at::IntArrayRef tiles, at::IntArrayRef window);

}  // namespace sparsed::kernels
