// SPDX-License-Identifier: Apache-2.0
// Attention on CUDA: Torch tensors in and out; which kernel takes which row.
#include "kernels/cuda/hopper/attention.h"

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "kernels/block_mask.h"
#include "kernels/cuda/attention_call.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/portable/attention.h"
#include "kernels/cuda/portable/mass.h"
#include "kernels/cuda/tensor_args.h"

namespace sparsed::kernels::cuda {
namespace {

AttentionCall MakeCall(const Tensor& q, const Tensor& k) {
  AttentionCall call{};
  call.q = q.const_data_ptr();
  call.k = k.const_data_ptr();
  call.tokens = q.size(0);
  call.heads = q.size(1);
  call.kv_heads = k.size(1);
  call.head_dim = q.size(2);
  call.q_stride_token = q.stride(0);
  call.q_stride_head = q.stride(1);
  call.k_stride_token = k.stride(0);
  call.k_stride_head = k.stride(1);
  call.element = ElementOf(q);
  return call;
}

std::vector<AttentionRow> MakeRows(const PackedRows& packed, const Tensor& mass_offsets) {
  const auto offsets = packed.row_offsets.accessor<int64_t, 1>();
  const auto masks = packed.mask_offsets.accessor<int64_t, 1>();
  const auto blocks = packed.block_tokens.accessor<int64_t, 1>();
  const auto masses = mass_offsets.accessor<int64_t, 1>();
  std::vector<AttentionRow> rows;
  for (int64_t r = 0; r < masks.size(0); ++r) {
    rows.push_back({offsets[r], offsets[r + 1] - offsets[r], masks[r], blocks[r], masses[r]});
  }
  return rows;
}

void RunPortable(const AttentionCall& call, const std::vector<AttentionRow>& rows,
                 cudaStream_t stream) {
  C10_CUDA_CHECK(LaunchPortableAttention(call, rows, stream));
  std::vector<AttentionRow> with_mass;
  for (const AttentionRow& row : rows) {
    if (row.mass_offset >= 0) with_mass.push_back(row);
  }
  C10_CUDA_CHECK(LaunchPortableMass(call, with_mass, WholeRange(call), stream));
}

void RunHopper(const AttentionCall& call, const std::vector<AttentionRow>& rows,
               const at::TensorOptions& options, cudaStream_t stream) {
  // Handed back to the allocator on return: later kernels of the stream reuse it in order.
  const Tensor workspace = at::empty({hopper::WorkspaceBytes(rows)}, options.dtype(at::kByte));
  C10_CUDA_CHECK(hopper::Launch(call, rows, workspace.mutable_data_ptr(), stream));
}

// Which kernel takes which row.
void Run(const AttentionCall& call, const std::vector<AttentionRow>& rows,
         const at::TensorOptions& options, cudaStream_t stream) {
  std::vector<AttentionRow> fast;
  std::vector<AttentionRow> others;
  const bool suits = hopper::TakesCall(call);
  for (const AttentionRow& row : rows) {
    (suits && hopper::TakesRow(row) ? fast : others).push_back(row);
  }
  if (!fast.empty()) RunHopper(call, fast, options, stream);
  if (!others.empty()) RunPortable(call, others, stream);
}

}  // namespace

AttentionMassResult AttentionWithMass(const Tensor& q, const Tensor& k, const Tensor& v,
                                      const PackedRows& rows, const Tensor& mass_offsets,
                                      int64_t mass_size) {
  const DeviceStream stream(q);
  const auto sums = q.options().dtype(at::kFloat);
  Tensor out = at::empty(q.sizes(), q.options());
  Tensor lse = at::empty({q.size(1), q.size(0)}, sums);
  Tensor mass = at::zeros({mass_size}, sums);
  AttentionCall call = MakeCall(q, k);
  call.v = v.const_data_ptr();
  call.v_stride_token = v.stride(0);
  call.v_stride_head = v.stride(1);
  call.out = out.mutable_data_ptr();
  call.lse = lse.mutable_data_ptr<float>();
  if (mass_size > 0) call.mass = mass.mutable_data_ptr<float>();
  call.mask_arena = rows.mask_arena.const_data_ptr<int32_t>();
  Run(call, MakeRows(rows, mass_offsets), q.options(), stream);
  return {out, lse, mass};
}

AttentionResult Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                          const PackedRows& rows) {
  const Tensor no_mass = at::full(rows.mask_offsets.sizes(), -1, rows.mask_offsets.options());
  const AttentionMassResult result = cuda::AttentionWithMass(q, k, v, rows, no_mass, 0);
  return {result.out, result.lse};
}

Tensor PooledMass(const Tensor& q, const Tensor& k, int64_t block_tokens, double scale,
                  int64_t first_key_block) {
  const DeviceStream stream(q);
  const int64_t blocks = BlockCount(q.size(0), block_tokens);
  const auto sums = q.options().dtype(at::kFloat);
  Tensor lse = at::empty({q.size(1), q.size(0)}, sums);
  Tensor mass = at::empty({q.size(1), blocks, blocks - first_key_block}, sums);
  AttentionCall call = MakeCall(q, k);
  call.lse = lse.mutable_data_ptr<float>();
  call.mass = mass.mutable_data_ptr<float>();
  const SoftmaxRange range{scale, first_key_block * block_tokens};
  const std::vector<AttentionRow> row = {{0, q.size(0), -1, block_tokens, 0}};
  C10_CUDA_CHECK(LaunchPortableLse(call, row, range, stream));
  C10_CUDA_CHECK(LaunchPortableMass(call, row, range, stream));
  return mass;
}

Tensor SampleRetainedMass(const Tensor& q, const Tensor& k, const Tensor& mask_words,
                          const Tensor& queries, int64_t block_tokens) {
  const DeviceStream stream(q);
  const Tensor positions = queries.contiguous();
  Tensor retained = at::empty({q.size(1), positions.size(0)}, q.options().dtype(at::kDouble));
  AttentionCall call = MakeCall(q, k);
  call.mask_arena = mask_words.const_data_ptr<int32_t>();
  const SampledQueries sample{positions.const_data_ptr<int64_t>(), positions.size(0), block_tokens,
                              retained.mutable_data_ptr<double>()};
  C10_CUDA_CHECK(LaunchPortableSample(call, sample, stream));
  return retained.mean(1);
}

}  // namespace sparsed::kernels::cuda
