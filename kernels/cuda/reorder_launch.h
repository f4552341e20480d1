// SPDX-License-Identifier: Apache-2.0
// Launches of reorder.cu and norm_order.cu. Pointers are device pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>

#include "kernels/cuda/element.h"

namespace sparsed::kernels::cuda {

// Rows of head_dim elements, moved as bytes. Sizes and strides here count bytes.
struct MoveRowsParams {
  const char* source;
  char* target;
  int64_t source_token_stride;
  int64_t source_head_stride;
  int64_t target_token_stride;
  int64_t target_head_stride;
  int64_t row_bytes;
  int64_t tokens;
  int64_t heads;
  const int32_t* order;  // [heads or 1, tokens]
  int64_t order_stride;  // from head to head, in elements; 0 if one order serves all
  bool gather;           // else scatter
  int access_bytes;      // 16, 4 or 2: divides the row, the strides and the pointers
};
void LaunchMoveRows(const MoveRowsParams& params, cudaStream_t stream);

// Norms into sort keys: window of the head in the upper half, bits of the norm in the lower.
struct NormKeysParams {
  const void* x;  // [tokens, heads, head_dim], last stride 1
  Element element;
  bool aligned;          // every row of x is a whole number of 16-byte accesses
  int64_t token_stride;  // in elements
  int64_t head_stride;
  int64_t tokens;
  int64_t heads;
  int64_t head_dim;
  int64_t window;
  uint64_t* keys;   // [heads, tokens]
  int32_t* places;  // [heads, tokens]: the tokens
};
void LaunchNormKeys(const NormKeysParams& params, cudaStream_t stream);

// A stable sort of `places` by the lowest key_bits of `keys`.
struct SortParams {
  const uint64_t* keys;
  const int32_t* places;
  uint64_t* sorted_keys;
  int32_t* sorted_places;
  int64_t count;
  int key_bits;
};
// Bytes of workspace for the sort; no work is done.
size_t SortWorkspaceBytes(const SortParams& params);
cudaError_t LaunchSort(const SortParams& params, void* workspace, size_t workspace_bytes,
                       cudaStream_t stream);

}  // namespace sparsed::kernels::cuda
