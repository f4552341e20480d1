// SPDX-License-Identifier: Apache-2.0
// Which query blocks of a prompt the generated tokens depend on, and masks that spend their blocks
// there. Ours; no paper has it.
//
//   const at::Tensor relevance = QueryBlockRelevance(mass, first_open_block);
//   const at::Tensor rows = RelevantQueryBlocks(relevance, first_open_block, /*share=*/0.2);
//   KeepBestBlock(mask_words, mass[layer], rows[layer]);
//
// A denoising step reads only the outputs of generated positions. A prompt block's output in layer
// l matters as far as some later layer attends to it from a block that matters itself, down from
// the generated positions in the last layer. `first_open_block` is the first block that holds a
// generated position. Runs on any device.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace sparsed::kernels {

// mass[l]: [heads, blocks, blocks] fp32, the dense attention mass of layer l (AttentionWithMass).
// Returns [layers, blocks] fp32 in [0, 1]: 1 for blocks from first_open_block on; for another block
// i in layer l the largest product of masses, each the largest over heads, along any path of later
// layers from an open block to i. Layers may be skipped on the way, as the residual stream does; in
// the last layer no prompt block matters.
at::Tensor QueryBlockRelevance(const std::vector<at::Tensor>& mass, int64_t first_open_block);

// bool, as `relevance` [layers, blocks]: the open blocks, and in each layer the
// ceil(share * blocks) other blocks of highest relevance, ties to the lower index; never one of
// relevance 0.
at::Tensor RelevantQueryBlocks(const at::Tensor& relevance, int64_t first_open_block, double share);

// Cuts the rows of a mask that are not in `rows` [query_blocks] bool to their best block of
// `scores` [heads, query_blocks, key_blocks].
void KeepBestBlock(const at::Tensor& mask_words, const at::Tensor& scores, const at::Tensor& rows);

}  // namespace sparsed::kernels
