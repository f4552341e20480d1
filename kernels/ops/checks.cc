// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/checks.h"

#include <ATen/ATen.h>

#include "kernels/block_mask.h"

namespace sparsed::kernels::ops {

using at::Tensor;

namespace {

void RequireRank(const Tensor& x, int64_t dimensions, std::string_view argument) {
  TORCH_CHECK_VALUE(x.dim() == dimensions, "sparsed: ", argument, " has ", x.dim(),
                    " dimensions, must have ", dimensions);
  TORCH_CHECK_VALUE(x.numel() == 0 || x.size(-1) == 1 || x.stride(-1) == 1, "sparsed: ", argument,
                    " must have a last stride of 1");
}

}  // namespace

void Require(bool condition, std::string_view argument, std::string_view limit) {
  TORCH_CHECK_VALUE(condition, "sparsed: ", argument, " ", limit);
}

void RequireRange(int64_t value, int64_t min, int64_t max, std::string_view argument) {
  TORCH_CHECK_VALUE(min <= value && value <= max, "sparsed: ", argument, " is ", value,
                    ", must be in [", min, ", ", max, "]");
}

void RequireFloat(const Tensor& x, int64_t dimensions, std::string_view argument) {
  RequireRank(x, dimensions, argument);
  TORCH_CHECK_VALUE(x.scalar_type() == at::kFloat, "sparsed: ", argument, " is ", x.scalar_type(),
                    ", must be float32");
}

void RequireActivations(const Tensor& x, int64_t dimensions, std::string_view argument) {
  RequireRank(x, dimensions, argument);
  const bool half = x.scalar_type() == at::kHalf && !x.is_cpu();
  TORCH_CHECK_VALUE(half || x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16,
                    "sparsed: ", argument, " is ", x.scalar_type(),
                    ", must be float32 or bfloat16, or float16 on CUDA");
}

void RequireFusedInput(const Tensor& x, int64_t dimensions, std::string_view argument) {
  RequireRank(x, dimensions, argument);
  const bool half = x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
  TORCH_CHECK_VALUE(x.scalar_type() == at::kFloat || (half && !x.is_cpu()), "sparsed: ", argument,
                    " is ", x.scalar_type(), ", must be float32, or bfloat16 or float16 on CUDA");
}

void RequireCount(const Tensor& list, int64_t size, std::string_view argument) {
  TORCH_CHECK_VALUE(list.size(0) == size, "sparsed: ", argument, " has ", list.size(0),
                    " elements, must have ", size);
}

void RequireSameDevice(const Tensor& first, const Tensor& other, std::string_view argument) {
  TORCH_CHECK_VALUE(first.device() == other.device(), "sparsed: ", argument, " is on ",
                    other.device(), ", must be on ", first.device(), " as the other tensors");
}

void RequireBlockTokens(int64_t block_tokens) {
  TORCH_CHECK_VALUE(
      block_tokens == 32 || block_tokens == 64 || block_tokens == 128 || block_tokens == 256,
      "sparsed: block_tokens is ", block_tokens, ", must be 32, 64, 128 or 256");
}

void RequireMask(const Tensor& mask_words, int64_t heads, int64_t query_blocks,
                 int64_t key_blocks) {
  const int64_t words = heads * query_blocks * MaskRowWords(key_blocks);
  TORCH_CHECK_VALUE(mask_words.scalar_type() == at::kInt && mask_words.is_contiguous() &&
                        mask_words.numel() == words,
                    "sparsed: mask_words is ", mask_words.scalar_type(), " of ", mask_words.numel(),
                    " elements, must be contiguous int32 of ", words,
                    " words: heads * query_blocks * ceil(key_blocks / 32)");
}

void RequireMatchingKeys(const Tensor& q, const Tensor& k) {
  Require(q.size(0) > 0 && q.size(1) > 0 && q.size(2) > 0, "q", "must not be empty");
  Require(k.size(0) == q.size(0), "k", "must have as many tokens as q");
  Require(k.size(2) == q.size(2), "k", "must have q's head_dim");
  Require(k.size(1) > 0 && q.size(1) % k.size(1) == 0, "k",
          "must have a number of heads that divides q's");
  Require(k.scalar_type() == q.scalar_type(), "k", "must have q's dtype");
  RequireSameDevice(q, k, "k");
}

void RequireRowOffsets(const Tensor& row_offsets, int64_t tokens) {
  Require(row_offsets.size(0) >= 2, "row_offsets",
          "must have one element more than there are rows, and at least one row");
  const auto offsets = row_offsets.accessor<int64_t, 1>();
  bool increasing = offsets[0] == 0 && offsets[offsets.size(0) - 1] == tokens;
  for (int64_t r = 0; r + 1 < offsets.size(0); ++r) increasing &= offsets[r] < offsets[r + 1];
  Require(increasing, "row_offsets",
          "must start at 0, increase strictly and end at the number of tokens");
}

}  // namespace sparsed::kernels::ops
