// SPDX-License-Identifier: Apache-2.0
// What one launch of the Hopper attention kernel is given, by value: no copy to the device, no host
// synchronisation, and a CUDA graph captures it as it is.
#pragma once

#include <cstdint>
#include <cuda.h>

namespace sparsed::kernels::cuda::hopper {

inline constexpr int kRowsPerLaunch = 32;

// One row. The tensor maps end at the row's last token: what lies beyond reads as zero, never as a
// neighbour's value (a NaN there would survive a weight of 0).
struct Row {
  CUtensorMap q, k, v;  // [length, heads, head_dim], boxes of one head and 64 channels
  int64_t first_token;  // in the packed batch
  int64_t mask_offset;  // first word of the row's mask in Params::masks; -1 = dense
  int64_t mass_offset;  // first number of the row's mass in Params::mass
  int length;           // tokens
  int first_tile;       // tiles of the rows before it
  int query_tiles;      // per head
};

struct Params {
  Row rows[kRowsPerLaunch];
  int row_count;
  int tile_count;  // query tiles of all rows and heads; a row's tiles go head by head
  int heads;
  int heads_per_kv;
  int64_t tokens;        // of the packed batch: the stride of lse
  float scale_log2;      // 1 / sqrt(head_dim) * log2(e)
  const int32_t* masks;  // block_mask.h
  void* out;             // [tokens, heads, head_dim]
  float* lse;            // [heads, tokens]
  float* mass;
  float* notes;    // [CTAs, note_slots, 128], see mass.cuh
  int note_slots;  // of a CTA: mass blocks of the longest row, a whole number of key tiles
  int* next_tile;  // 0 at the start of the launch: tiles that were taken beyond the first ones
};

}  // namespace sparsed::kernels::cuda::hopper
