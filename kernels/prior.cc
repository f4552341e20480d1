// SPDX-License-Identifier: Apache-2.0
// Host code without a device version: a prior is made once per request.
#include "kernels/prior.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <torch/library.h>

#include "kernels/block_mask.h"
#include "kernels/ops/checks.h"

namespace sparsed::kernels {
namespace {

using at::Tensor;

constexpr int64_t kMaxBlocks = 1 << 16;  // a mask of so many is 512 MiB

struct EmptyMask {
  explicit EmptyMask(int64_t blocks)
      : row_words(MaskRowWords(blocks)),
        tensor(at::zeros({blocks * row_words}, at::kInt)),
        words(tensor.mutable_data_ptr<int32_t>()) {}
  int64_t row_words;
  Tensor tensor;
  int32_t* words;
};

// Key tiles [begin, end) of query tile `at` along one dimension.
struct Range {
  int64_t begin;
  int64_t end;
};
Range Around(int64_t at, int64_t window, int64_t tiles) {
  return {std::max<int64_t>(0, at - window / 2), std::min(tiles, at + window / 2 + 1)};
}

void RequireExtent(at::IntArrayRef extent, std::string_view argument) {
  TORCH_CHECK_VALUE(extent.size() == 3, "sparsed: ", argument, " has ", extent.size(),
                    " elements, must have 3: t, h, w");
  for (const int64_t n : extent) ops::RequireRange(n, 1, kMaxBlocks, argument);
}

}  // namespace

Tensor SinkWindowMask(int64_t blocks, int64_t sinks, int64_t window) {
  ops::RequireRange(blocks, 1, kMaxBlocks, "blocks");
  ops::RequireRange(sinks, 0, INT32_MAX, "sinks");
  ops::RequireRange(window, 0, INT32_MAX, "window");
  const EmptyMask mask(blocks);
  for (int64_t i = 0; i < blocks; ++i) {
    int32_t* row = mask.words + i * mask.row_words;
    for (int64_t j = 0; j < std::min(sinks, blocks); ++j) SetMaskBit(row, j);
    const int64_t end = std::min(blocks, i + window + 1);
    for (int64_t j = std::max<int64_t>(0, i - window); j < end; ++j) SetMaskBit(row, j);
  }
  return mask.tensor;
}

Tensor StaMask(at::IntArrayRef tiles, at::IntArrayRef window) {
  RequireExtent(tiles, "tiles");
  RequireExtent(window, "window");
  const int64_t blocks = tiles[0] * tiles[1] * tiles[2];
  TORCH_CHECK_VALUE(blocks <= kMaxBlocks, "sparsed: tiles are ", blocks,
                    " in all, must be at most ", kMaxBlocks);
  const EmptyMask mask(blocks);
  for (int64_t i = 0; i < blocks; ++i) {
    int32_t* row = mask.words + i * mask.row_words;
    const Range t = Around(i / (tiles[1] * tiles[2]), window[0], tiles[0]);
    const Range h = Around(i / tiles[2] % tiles[1], window[1], tiles[1]);
    const Range w = Around(i % tiles[2], window[2], tiles[2]);
    for (int64_t a = t.begin; a < t.end; ++a) {
      for (int64_t b = h.begin; b < h.end; ++b) {
        for (int64_t c = w.begin; c < w.end; ++c) {
          SetMaskBit(row, (a * tiles[1] + b) * tiles[2] + c);
        }
      }
    }
  }
  return mask.tensor;
}

TORCH_LIBRARY_FRAGMENT(sparsed, m) {
  m.def("sink_window_mask(int blocks, int sinks, int window) -> Tensor", SinkWindowMask);
  m.def("sta_mask(int[] tiles, int[] window) -> Tensor", StaMask);
}

}  // namespace sparsed::kernels
