// SPDX-License-Identifier: Apache-2.0
#include "kernels/relevance.h"

#include <cmath>

#include <ATen/ATen.h>

#include "kernels/block_mask.h"

namespace sparsed::kernels {

at::Tensor QueryBlockRelevance(const std::vector<at::Tensor>& mass, int64_t first_open_block) {
  const auto layers = static_cast<int64_t>(mass.size());
  const int64_t blocks = mass.front().size(1);
  const at::Tensor relevance = at::empty({layers, blocks}, mass.front().options());
  at::Tensor row = at::zeros({blocks}, mass.front().options());
  row.narrow(0, first_open_block, blocks - first_open_block).fill_(1);
  for (int64_t layer = layers - 1; layer >= 0; --layer) {
    relevance[layer].copy_(row);
    const at::Tensor attention = mass[static_cast<size_t>(layer)].amax(0);  // [query, key]
    row = at::maximum(row, (row.unsqueeze(1) * attention).amax(0));
  }
  return relevance;
}

at::Tensor RelevantQueryBlocks(const at::Tensor& relevance, int64_t first_open_block,
                               double share) {
  const int64_t blocks = relevance.size(1);
  const auto wanted = static_cast<int64_t>(std::ceil(share * static_cast<double>(blocks)));
  at::Tensor prompt = relevance.clone();
  prompt.narrow(1, first_open_block, blocks - first_open_block).fill_(-1);
  const at::Tensor order = prompt.argsort(/*stable=*/true, /*dim=*/1, /*descending=*/true);
  const at::Tensor rank = order.argsort(/*stable=*/true, /*dim=*/1);
  at::Tensor rows = rank.lt(wanted).logical_and_(prompt.gt(0));
  rows.narrow(1, first_open_block, blocks - first_open_block).fill_(true);
  return rows;
}

void KeepBestBlock(const at::Tensor& mask_words, const at::Tensor& scores, const at::Tensor& rows) {
  const at::Tensor words =
      mask_words.view({scores.size(0), scores.size(1), MaskRowWords(scores.size(2))});
  const at::Tensor best = scores.argmax(-1, /*keepdim=*/true);
  const at::Tensor bit =
      at::bitwise_left_shift(at::ones_like(best, words.options()), best.remainder(32).to(at::kInt));
  const at::Tensor cut = at::zeros_like(words).scatter_(-1, best.floor_divide(32), bit);
  words.copy_(at::where(rows.view({1, -1, 1}), words, cut));
}

}  // namespace sparsed::kernels
