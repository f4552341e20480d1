// SPDX-License-Identifier: Apache-2.0
// Shapes and dtypes of the operators' results, for tensors without data: what torch.compile and
// FakeTensorMode ask. Lengths may be symbols, so nothing here may compare them; arguments are
// checked when the operator runs (checks.h).
#include <optional>
#include <tuple>

#include <ATen/ATen.h>
#include <torch/library.h>

#include "kernels/ops/checks.h"

namespace sparsed::kernels {
namespace {

using at::IntArrayRef;
using at::Tensor;
using c10::SymInt;
using c10::SymIntArrayRef;

// block_tokens is checked because it divides.
SymInt Blocks(const SymInt& tokens, int64_t block_tokens) {
  ops::RequireBlockTokens(block_tokens);
  return (tokens + (block_tokens - 1)) / block_tokens;
}

Tensor Empty(SymIntArrayRef sizes, const Tensor& like, at::ScalarType dtype) {
  return at::empty_symint(sizes, like.options().dtype(dtype));
}

// One parameter per argument of a schema, and the dispatcher knows symbols by value only.
// NOLINTBEGIN(readability-function-size,performance-unnecessary-value-param)

std::tuple<Tensor, Tensor> Attention(const Tensor& q, const Tensor&, const Tensor&, SymIntArrayRef,
                                     const Tensor&, SymIntArrayRef, IntArrayRef) {
  return {Empty(q.sym_sizes(), q, q.scalar_type()),
          Empty({q.sym_size(1), q.sym_size(0)}, q, at::kFloat)};
}

std::tuple<Tensor, Tensor, Tensor> AttentionWithMass(const Tensor& q, const Tensor& k,
                                                     const Tensor& v, SymIntArrayRef row_offsets,
                                                     const Tensor& mask_arena,
                                                     SymIntArrayRef mask_offsets,
                                                     IntArrayRef block_tokens, SymIntArrayRef,
                                                     SymInt mass_size) {
  auto [out, lse] = Attention(q, k, v, row_offsets, mask_arena, mask_offsets, block_tokens);
  return {out, lse, Empty({mass_size}, q, at::kFloat)};
}

Tensor PooledMass(const Tensor& q, const Tensor&, int64_t block_tokens, double,
                  SymInt first_key_block) {
  const SymInt blocks = Blocks(q.sym_size(0), block_tokens);
  return Empty({q.sym_size(1), blocks, blocks - first_key_block}, q, at::kFloat);
}

void SelectBlocks(const Tensor&, const Tensor&, const std::optional<Tensor>&, c10::string_view,
                  double, SymInt, double) {}

std::tuple<Tensor, Tensor> MaskStatistics(const Tensor&, const Tensor& mass, SymInt, int64_t) {
  const SymInt heads = mass.sym_size(0);
  return {Empty({heads}, mass, at::kLong), Empty({heads}, mass, at::kDouble)};
}

Tensor CountKeptBlocks(const Tensor& mask_words, int64_t heads) {
  return Empty({heads}, mask_words, at::kLong);
}

Tensor SampleRetainedMass(const Tensor& q, const Tensor&, const Tensor&, const Tensor&, int64_t) {
  return Empty({q.sym_size(1)}, q, at::kDouble);
}

std::tuple<Tensor, Tensor> BlockStatistics(const Tensor& x, int64_t block_tokens) {
  const SymInt sizes[] = {x.sym_size(1), Blocks(x.sym_size(0), block_tokens), x.sym_size(2)};
  return {Empty(sizes, x, at::kFloat), Empty(sizes, x, at::kFloat)};
}

Tensor BlockLogits(const Tensor& q_mean, const Tensor&, const Tensor& k_mean, const Tensor&, SymInt,
                   int64_t, bool) {
  return Empty({q_mean.sym_size(0), q_mean.sym_size(1), k_mean.sym_size(1)}, q_mean, at::kFloat);
}

Tensor NormOrder(const Tensor& x, int64_t) {
  return Empty({x.sym_size(1), x.sym_size(0)}, x, at::kInt);
}

void MoveRows(const Tensor&, const Tensor&, const Tensor&) {}

Tensor RmsNorm(const Tensor& x, const Tensor&, double) {
  return Empty(x.sym_sizes(), x, x.scalar_type());
}

void Rope(const Tensor&, const Tensor&, const Tensor&, SymIntArrayRef) {}

Tensor SiluMul(const Tensor& gate_up) {
  return Empty({gate_up.sym_size(0), gate_up.sym_size(1) / 2}, gate_up, gate_up.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor> CandidateStatistics(const Tensor& logits, const Tensor&,
                                                       double) {
  const SymInt positions = logits.sym_size(0);
  return {Empty({positions}, logits, at::kInt), Empty({positions}, logits, at::kFloat),
          Empty({positions}, logits, at::kBool)};
}

// NOLINTEND(readability-function-size,performance-unnecessary-value-param)

}  // namespace

TORCH_LIBRARY_IMPL(sparsed, Meta, m) {
  m.impl("attention", Attention);
  m.impl("attention_with_mass", AttentionWithMass);
  m.impl("pooled_mass", PooledMass);

  m.impl("select_blocks", SelectBlocks);
  m.impl("mask_statistics", MaskStatistics);
  m.impl("count_kept_blocks", CountKeptBlocks);
  m.impl("sample_retained_mass", SampleRetainedMass);

  m.impl("block_statistics", BlockStatistics);
  m.impl("block_logits", BlockLogits);

  m.impl("norm_order", NormOrder);
  m.impl("gather_rows", MoveRows);
  m.impl("scatter_rows", MoveRows);

  m.impl("rms_norm", RmsNorm);
  m.impl("rope", Rope);
  m.impl("silu_mul", SiluMul);
  m.impl("candidate_statistics", CandidateStatistics);
}

}  // namespace sparsed::kernels
