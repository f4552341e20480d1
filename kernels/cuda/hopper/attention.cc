// SPDX-License-Identifier: Apache-2.0
// Rows are sorted into classes, one launch serves up to kRowsPerLaunch rows of a class.
#include "kernels/cuda/hopper/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "kernels/block_mask.h"
#include "kernels/cuda/hopper/instances.h"
#include "kernels/cuda/hopper/params.h"

namespace sparsed::kernels::cuda::hopper {

LaunchFunction Bf16HeadDim64(RowClass row_class);
LaunchFunction Bf16HeadDim128(RowClass row_class);
LaunchFunction Fp16HeadDim64(RowClass row_class);
LaunchFunction Fp16HeadDim128(RowClass row_class);

LaunchFunction FindInstance(Element element, int64_t head_dim, RowClass row_class) {
  if (element == Element::kBFloat16) {
    return head_dim == 64 ? Bf16HeadDim64(row_class) : Bf16HeadDim128(row_class);
  }
  return head_dim == 64 ? Fp16HeadDim64(row_class) : Fp16HeadDim128(row_class);
}

namespace {

constexpr std::array<RowClass, 4> kClasses = {RowClass::kMass128, RowClass::kMass64,
                                              RowClass::kShared, RowClass::kOwn};
constexpr int64_t kAlignment = 256;
constexpr int kNoteRows = 128;
// So that a launch's tiles, kRowsPerLaunch * kMaxHeads * kMaxLength / 64, are counted in 32 bits.
constexpr int64_t kMaxHeads = 512;
constexpr int64_t kMaxLength = int64_t{1} << 22;

int Attribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 0;
  if (cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess) return 0;
  return value;
}

decltype(&cuTensorMapEncodeTiled) EncodeTiled() {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                               12000, cudaEnableDefault, &found);
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? function : nullptr;
  }();
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(encode);
}

RowClass ClassOf(const AttentionRow& row) {
  if (row.mass_offset >= 0) {
    return row.block_tokens == 128 ? RowClass::kMass128 : RowClass::kMass64;
  }
  return row.mask_offset >= 0 && row.block_tokens == 64 ? RowClass::kOwn : RowClass::kShared;
}

int64_t MassBlock(RowClass row_class) {
  return row_class == RowClass::kMass128 ? 128 : row_class == RowClass::kMass64 ? 64 : 0;
}

// The rows of one launch.
struct Batch {
  RowClass row_class;
  std::vector<AttentionRow> rows;

  // Mass blocks of the longest row, up to the end of its last key tile of 128 tokens.
  int64_t NoteSlots() const {
    const int64_t block = MassBlock(row_class);
    int64_t slots = 0;
    for (const AttentionRow& row : rows) {
      if (block != 0) slots = std::max(slots, BlockCount(row.length, 128) * (128 / block));
    }
    return slots;
  }
};

// Longest work first; a sparse row counts as a third of a dense one, its mask is not known here.
bool IsLonger(const AttentionRow& a, const AttentionRow& b) {
  const auto work = [](const AttentionRow& row) {
    return row.length * row.length / (row.mask_offset < 0 ? 1 : 3);
  };
  return work(a) > work(b);
}

std::vector<Batch> MakeBatches(const std::vector<AttentionRow>& rows) {
  std::vector<Batch> batches;
  for (const RowClass row_class : kClasses) {
    std::vector<AttentionRow> members;
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(members),
                 [&](const AttentionRow& row) { return ClassOf(row) == row_class; });
    std::stable_sort(members.begin(), members.end(), IsLonger);
    for (auto begin = members.begin(); begin != members.end();) {
      const auto end = begin + std::min<int64_t>(kRowsPerLaunch, members.end() - begin);
      batches.push_back({row_class, {begin, end}});
      begin = end;
    }
  }
  return batches;
}

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t CounterBytes(const std::vector<Batch>& batches) {
  return Aligned(static_cast<int64_t>(batches.size() * sizeof(int)));
}

int64_t NoteBytes(const Batch& batch, int64_t ctas) {
  return ctas * batch.NoteSlots() * kNoteRows * static_cast<int64_t>(sizeof(float));
}

struct Operand {
  const void* data;
  int64_t heads, stride_token, stride_head;
};

// [length, heads, head_dim] of one row, read in boxes of box_tokens x 1 x 64, 128-byte swizzled.
bool Encode(const AttentionCall& call, const AttentionRow& row, const Operand& x,
            uint32_t box_tokens, CUtensorMap* map) {
  constexpr int64_t kElementBytes = 2;
  const auto* data = static_cast<const char*>(x.data) + row.begin * x.stride_token * kElementBytes;
  const std::array<cuuint64_t, 3> sizes = {static_cast<cuuint64_t>(call.head_dim),
                                           static_cast<cuuint64_t>(x.heads),
                                           static_cast<cuuint64_t>(row.length)};
  const std::array<cuuint64_t, 2> strides = {
      static_cast<cuuint64_t>(x.stride_head * kElementBytes),
      static_cast<cuuint64_t>(x.stride_token * kElementBytes)};
  const std::array<cuuint32_t, 3> box = {64, 1, box_tokens};
  const std::array<cuuint32_t, 3> steps = {1, 1, 1};
  const auto type = call.element == Element::kBFloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                       : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return EncodeTiled()(map, type, 3, const_cast<char*>(data), sizes.data(), strides.data(),
                       box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                       CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                       CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool FillRow(const AttentionCall& call, const AttentionRow& row, RowClass row_class, Row* to) {
  const uint32_t block = row_class == RowClass::kOwn ? 64 : 128;
  to->first_token = row.begin;
  to->mask_offset = row.mask_offset;
  to->mass_offset = row.mass_offset;
  to->length = static_cast<int>(row.length);
  to->query_tiles = static_cast<int>(BlockCount(row.length, block));
  return Encode(call, row, {call.q, call.heads, call.q_stride_token, call.q_stride_head}, 64,
                &to->q) &&
         Encode(call, row, {call.k, call.kv_heads, call.k_stride_token, call.k_stride_head}, block,
                &to->k) &&
         Encode(call, row, {call.v, call.kv_heads, call.v_stride_token, call.v_stride_head}, block,
                &to->v);
}

cudaError_t LaunchBatch(const AttentionCall& call, const Batch& batch, int* counter, float* notes,
                        cudaStream_t stream) {
  Params params{};
  for (const AttentionRow& row : batch.rows) {
    Row& to = params.rows[params.row_count++];
    if (!FillRow(call, row, batch.row_class, &to)) return cudaErrorInvalidValue;
    to.first_tile = params.tile_count;
    params.tile_count += to.query_tiles * static_cast<int>(call.heads);
  }
  params.heads = static_cast<int>(call.heads);
  params.heads_per_kv = static_cast<int>(call.heads / call.kv_heads);
  params.tokens = call.tokens;
  params.scale_log2 =
      static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(call.head_dim)));
  params.masks = call.mask_arena;
  params.out = call.out;
  params.lse = call.lse;
  params.mass = call.mass;
  params.notes = notes;
  params.note_slots = static_cast<int>(batch.NoteSlots());
  params.next_tile = counter;
  const int tiles_per_cta = batch.row_class == RowClass::kOwn ? 2 : 1;
  const int ctas = std::min(Attribute(cudaDevAttrMultiProcessorCount),
                            (params.tile_count + tiles_per_cta - 1) / tiles_per_cta);
  return FindInstance(call.element, call.head_dim, batch.row_class)(params, ctas, stream);
}

bool IsAligned(const void* data, int64_t stride_token, int64_t stride_head) {
  // What a tensor map can describe: 16 bytes, 8 elements.
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride_token % 8 == 0 &&
         stride_head % 8 == 0 && stride_token > 0 && stride_head > 0;
}

}  // namespace

bool TakesCall(const AttentionCall& call) {
  return call.element != Element::kFloat && (call.head_dim == 64 || call.head_dim == 128) &&
         call.heads <= kMaxHeads && IsAligned(call.q, call.q_stride_token, call.q_stride_head) &&
         IsAligned(call.k, call.k_stride_token, call.k_stride_head) &&
         IsAligned(call.v, call.v_stride_token, call.v_stride_head) &&
         Attribute(cudaDevAttrComputeCapabilityMajor) == 9 && EncodeTiled() != nullptr;
}

bool TakesRow(const AttentionRow& row) {
  const bool plain = row.mask_offset < 0 && row.mass_offset < 0;
  if (row.length > kMaxLength) return false;
  return plain || row.block_tokens == 64 || row.block_tokens == 128;
}

int64_t WorkspaceBytes(const std::vector<AttentionRow>& rows) {
  const std::vector<Batch> batches = MakeBatches(rows);
  const int64_t ctas = Attribute(cudaDevAttrMultiProcessorCount);
  int64_t notes = 0;
  for (const Batch& batch : batches) notes = std::max(notes, NoteBytes(batch, ctas));
  return CounterBytes(batches) + notes;
}

cudaError_t Launch(const AttentionCall& call, const std::vector<AttentionRow>& rows,
                   void* workspace, cudaStream_t stream) {
  const std::vector<Batch> batches = MakeBatches(rows);
  const int64_t counter_bytes = CounterBytes(batches);
  auto* counters = static_cast<int*>(workspace);
  auto* notes = reinterpret_cast<float*>(static_cast<char*>(workspace) + counter_bytes);
  cudaError_t error = cudaMemsetAsync(counters, 0, counter_bytes, stream);
  for (size_t i = 0; i < batches.size() && error == cudaSuccess; ++i) {
    error = LaunchBatch(call, batches[i], counters + i, notes, stream);
  }
  return error;
}

}  // namespace sparsed::kernels::cuda::hopper
