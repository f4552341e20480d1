// SPDX-License-Identifier: Apache-2.0
// Argument checks that several operators share. Each throws c10::ValueError
// "sparsed: <argument> <what it must be>", with the value where one number says it.
#pragma once

#include <string_view>

#include <ATen/core/Tensor.h>

namespace sparsed::kernels::ops {

void Require(bool condition, std::string_view argument, std::string_view limit);

// min <= value <= max.
void RequireRange(int64_t value, int64_t min, int64_t max, std::string_view argument);

// A float32 tensor of so many dimensions whose last stride is 1.
void RequireFloat(const at::Tensor& x, int64_t dimensions, std::string_view argument);

// The same, of a dtype that activations have: float32 or bfloat16, on CUDA float16 as well.
void RequireActivations(const at::Tensor& x, int64_t dimensions, std::string_view argument);

// The same, for operators that the CPU has in float32 alone: float32, on CUDA and other devices
// bfloat16 and float16 as well.
void RequireFusedInput(const at::Tensor& x, int64_t dimensions, std::string_view argument);

// A list of `size` elements.
void RequireCount(const at::Tensor& list, int64_t size, std::string_view argument);

// Every tensor after the first must be where the first one is.
void RequireSameDevice(const at::Tensor& first, const at::Tensor& other, std::string_view argument);

// 32, 64, 128 or 256.
void RequireBlockTokens(int64_t block_tokens);

// A mask of heads * query_blocks rows over key_blocks key blocks (block_mask.h).
void RequireMask(const at::Tensor& mask_words, int64_t heads, int64_t query_blocks,
                 int64_t key_blocks);

// k has q's tokens, head_dim, dtype and device, and a number of heads that divides q's.
void RequireMatchingKeys(const at::Tensor& q, const at::Tensor& k);

// Starts at 0, increases strictly, ends at `tokens`.
void RequireRowOffsets(const at::Tensor& row_offsets, int64_t tokens);

}  // namespace sparsed::kernels::ops
