// SPDX-License-Identifier: Apache-2.0
// The operator library: schemas, argument checks, and which function serves which device.
// An operator's arguments are checked here once, for C++ and Python callers and for every device.
#include <string>
#include <string_view>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "kernels/attention.h"
#include "kernels/block_mask.h"
#include "kernels/cpu/cpu.h"
#include "kernels/fused.h"
#include "kernels/select.h"

namespace sparsed::kernels {
namespace {

using at::Tensor;

void Require(bool condition, std::string_view argument, std::string_view limit) {
  TORCH_CHECK_VALUE(condition, "sparsed: ", argument, " ", limit);
}

void RequireFloat(const Tensor& x, int64_t dimensions, std::string_view argument) {
  TORCH_CHECK_VALUE(x.dim() == dimensions, "sparsed: ", argument, " has ", x.dim(),
                    " dimensions, must have ", dimensions);
  TORCH_CHECK_VALUE(x.scalar_type() == at::kFloat, "sparsed: ", argument, " is ", x.scalar_type(),
                    ", must be float32");
  TORCH_CHECK_VALUE(x.numel() == 0 || x.stride(-1) == 1, "sparsed: ", argument,
                    " must have a last stride of 1");
}

void RequireIndices(const Tensor& x, int64_t size, std::string_view argument) {
  TORCH_CHECK_VALUE(x.dim() == 1 && x.size(0) == size && x.scalar_type() == at::kLong &&
                        x.is_cpu() && x.is_contiguous(),
                    "sparsed: ", argument, " must be a contiguous int64 CPU tensor of ", size,
                    " elements");
}

void RequireBlockTokens(int64_t block_tokens) {
  TORCH_CHECK_VALUE(block_tokens == 32 || block_tokens == 64 || block_tokens == 128,
                    "sparsed: block_tokens is ", block_tokens, ", must be 32, 64 or 128");
}

void CheckQueriesKeys(const Tensor& q, const Tensor& k) {
  RequireFloat(q, 3, "q");
  RequireFloat(k, 3, "k");
  Require(q.size(0) > 0 && q.size(1) > 0 && q.size(2) > 0, "q", "must not be empty");
  Require(k.size(0) == q.size(0), "k", "must have as many tokens as q");
  Require(k.size(2) == q.size(2), "k", "must have q's head_dim");
  Require(k.size(1) > 0 && q.size(1) % k.size(1) == 0, "k",
          "must have a number of heads that divides q's");
}

void CheckRowOffsets(const Tensor& row_offsets, int64_t tokens) {
  Require(row_offsets.dim() == 1 && row_offsets.size(0) >= 2, "row_offsets",
          "must have one element more than there are rows, and at least one row");
  RequireIndices(row_offsets, row_offsets.size(0), "row_offsets");
  const auto offsets = row_offsets.accessor<int64_t, 1>();
  bool increasing = offsets[0] == 0 && offsets[offsets.size(0) - 1] == tokens;
  for (int64_t r = 0; r + 1 < offsets.size(0); ++r) increasing &= offsets[r] < offsets[r + 1];
  Require(increasing, "row_offsets",
          "must start at 0, increase strictly and end at the number of tokens");
}

void CheckMasks(const PackedRows& rows, int64_t heads) {
  const Tensor& arena = rows.mask_arena;
  Require(arena.dim() == 1 && arena.scalar_type() == at::kInt && arena.is_contiguous(),
          "mask_arena", "must be a contiguous one-dimensional int32 tensor");
  const auto offsets = rows.row_offsets.accessor<int64_t, 1>();
  const auto masks = rows.mask_offsets.accessor<int64_t, 1>();
  const auto blocks = rows.block_tokens.accessor<int64_t, 1>();
  for (int64_t r = 0; r < masks.size(0); ++r) {
    RequireBlockTokens(blocks[r]);
    if (masks[r] < 0) continue;
    const int64_t words = MaskWords(heads, offsets[r + 1] - offsets[r], blocks[r]);
    TORCH_CHECK_VALUE(masks[r] + words <= arena.size(0), "sparsed: mask_offsets of row ", r, " is ",
                      masks[r], ": its mask of ", words, " words ends beyond the arena's ",
                      arena.size(0));
  }
}

void CheckAttention(const Tensor& q, const Tensor& k, const Tensor& v, const PackedRows& rows) {
  CheckQueriesKeys(q, k);
  RequireFloat(v, 3, "v");
  Require(v.sizes() == k.sizes(), "v", "must have k's shape");
  CheckRowOffsets(rows.row_offsets, q.size(0));
  const int64_t count = rows.row_offsets.size(0) - 1;
  RequireIndices(rows.mask_offsets, count, "mask_offsets");
  RequireIndices(rows.block_tokens, count, "block_tokens");
  CheckMasks(rows, q.size(1));
}

void CheckMassOffsets(const PackedRows& rows, int64_t heads, const Tensor& mass_offsets,
                      int64_t mass_size) {
  RequireIndices(mass_offsets, rows.mask_offsets.size(0), "mass_offsets");
  const auto offsets = rows.row_offsets.accessor<int64_t, 1>();
  const auto masks = rows.mask_offsets.accessor<int64_t, 1>();
  const auto block_tokens = rows.block_tokens.accessor<int64_t, 1>();
  const auto masses = mass_offsets.accessor<int64_t, 1>();
  for (int64_t r = 0; r < masses.size(0); ++r) {
    if (masses[r] < 0) continue;
    Require(masks[r] < 0, "mass_offsets", "may only name dense rows");
    const int64_t blocks = BlockCount(offsets[r + 1] - offsets[r], block_tokens[r]);
    Require(masses[r] + heads * blocks * blocks <= mass_size, "mass_offsets",
            "must leave room for the row's mass within mass_size");
  }
}

// NOLINTNEXTLINE(readability-function-size): one parameter per argument of the operator's schema
std::tuple<Tensor, Tensor> AttentionCpu(const Tensor& q, const Tensor& k, const Tensor& v,
                                        const Tensor& row_offsets, const Tensor& mask_arena,
                                        const Tensor& mask_offsets, const Tensor& block_tokens) {
  const PackedRows rows{row_offsets, mask_arena, mask_offsets, block_tokens};
  CheckAttention(q, k, v, rows);
  AttentionResult result = cpu::Attention(q, k, v, rows);
  return {result.out, result.lse};
}

// NOLINTNEXTLINE(readability-function-size): one parameter per argument of the operator's schema
std::tuple<Tensor, Tensor, Tensor> AttentionWithMassCpu(
    const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& row_offsets,
    const Tensor& mask_arena, const Tensor& mask_offsets, const Tensor& block_tokens,
    const Tensor& mass_offsets, int64_t mass_size) {
  const PackedRows rows{row_offsets, mask_arena, mask_offsets, block_tokens};
  CheckAttention(q, k, v, rows);
  CheckMassOffsets(rows, q.size(1), mass_offsets, mass_size);
  AttentionMassResult result = cpu::AttentionWithMass(q, k, v, rows, mass_offsets, mass_size);
  return {result.out, result.lse, result.mass};
}

Tensor PooledMassCpu(const Tensor& q, const Tensor& k, int64_t block_tokens, double scale,
                     int64_t first_key_block) {
  CheckQueriesKeys(q, k);
  RequireBlockTokens(block_tokens);
  Require(first_key_block >= 0 && first_key_block < BlockCount(q.size(0), block_tokens),
          "first_key_block", "must be one of the key blocks");
  return cpu::PooledMass(q, k, block_tokens, scale, first_key_block);
}

void SelectBlocksCpu(const Tensor& mask_words, const Tensor& scores,
                     const std::optional<Tensor>& generation_scores, c10::string_view rule,
                     double ratio, int64_t first_generation_block) {
  RequireFloat(scores, 3, "scores");
  const std::string_view rule_name(rule.data(), rule.size());
  const int64_t key_blocks = scores.size(2);
  Require(scores.numel() > 0 && scores.is_contiguous(), "scores",
          "must be contiguous and not empty");
  Require(first_generation_block >= 0 && first_generation_block < key_blocks,
          "first_generation_block", "must be one of the key blocks");
  Require(ratio > 0 && ratio <= 1, "ratio", "must be in (0, 1]");
  Require(mask_words.scalar_type() == at::kInt && mask_words.is_contiguous() &&
              mask_words.numel() == scores.size(0) * scores.size(1) * MaskRowWords(key_blocks),
          "mask_words",
          "must be contiguous int32 of heads * query_blocks * ceil(key_blocks / 32) words");
  Require(rule_name == kTopRatio || rule_name == kTopRatioCompat, "rule",
          "must be top_ratio or top_ratio_compat");
  if (rule_name == kTopRatioCompat) {
    Require(generation_scores.has_value(), "generation_scores", "is needed by top_ratio_compat");
    RequireFloat(*generation_scores, 3, "generation_scores");
    Require(generation_scores->is_contiguous() && generation_scores->size(0) == scores.size(0) &&
                generation_scores->size(1) == scores.size(1) &&
                generation_scores->size(2) == key_blocks - first_generation_block,
            "generation_scores", "must be [heads, query_blocks, generation key blocks]");
  }
  cpu::SelectBlocks(mask_words, scores, generation_scores.value_or(Tensor()), rule_name, ratio,
                    first_generation_block);
}

std::tuple<Tensor, Tensor> MaskStatisticsCpu(const Tensor& mask_words, const Tensor& mass,
                                             int64_t tokens, int64_t block_tokens) {
  RequireFloat(mass, 3, "mass");
  RequireBlockTokens(block_tokens);
  const int64_t blocks = BlockCount(tokens, block_tokens);
  Require(mass.is_contiguous() && mass.size(1) == blocks && mass.size(2) == blocks, "mass",
          "must be contiguous [heads, query_blocks, key_blocks]");
  Require(mask_words.scalar_type() == at::kInt && mask_words.is_contiguous() &&
              mask_words.numel() == MaskWords(mass.size(0), tokens, block_tokens),
          "mask_words", "must hold the mask of the mass's shape");
  MaskStatistics result = cpu::ComputeMaskStatistics(mask_words, mass, tokens, block_tokens);
  return {result.kept, result.retained};
}

Tensor RmsNormCpu(const Tensor& x, const Tensor& weight, double eps) {
  RequireFloat(x, 2, "x");
  RequireFloat(weight, 1, "weight");
  Require(weight.size(0) == x.size(1), "weight", "must have x's width");
  return cpu::RmsNorm(x, weight, eps);
}

void RopeCpu(const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& row_offsets) {
  RequireFloat(x, 3, "x");
  RequireFloat(cos, 2, "cos");
  RequireFloat(sin, 2, "sin");
  Require(x.size(2) % 2 == 0, "x", "must have an even head_dim");
  Require(cos.is_contiguous() && sin.is_contiguous() && cos.sizes() == sin.sizes() &&
              cos.size(1) == x.size(2) / 2,
          "cos", "and sin must be contiguous [positions, head_dim / 2]");
  CheckRowOffsets(row_offsets, x.size(0));
  const auto offsets = row_offsets.accessor<int64_t, 1>();
  for (int64_t r = 0; r + 1 < offsets.size(0); ++r) {
    Require(offsets[r + 1] - offsets[r] <= cos.size(0), "cos", "must cover the longest row");
  }
  cpu::Rope(x, cos, sin, row_offsets);
}

Tensor SiluMulCpu(const Tensor& gate_up) {
  RequireFloat(gate_up, 2, "gate_up");
  Require(gate_up.size(1) % 2 == 0, "gate_up", "must have an even width");
  return cpu::SiluMul(gate_up);
}

std::tuple<Tensor, Tensor, Tensor> CandidateStatisticsCpu(const Tensor& logits,
                                                          const Tensor& uniforms,
                                                          double temperature) {
  RequireFloat(logits, 2, "logits");
  Require(logits.size(1) > 0 && logits.is_contiguous(), "logits",
          "must be contiguous and not empty");
  Require(uniforms.dim() == 1 && uniforms.size(0) == logits.size(0) &&
              uniforms.scalar_type() == at::kDouble && uniforms.is_contiguous(),
          "uniforms", "must be contiguous float64, one per position");
  Require(temperature >= 0, "temperature", "must not be negative");
  CandidateStatistics result = cpu::ComputeCandidateStatistics(logits, uniforms, temperature);
  return {result.token, result.probability, result.finite};
}

template <class Signature>
auto Operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace

TORCH_LIBRARY(sparsed, m) {
  m.def(
      "attention(Tensor q, Tensor k, Tensor v, Tensor row_offsets, Tensor mask_arena, "
      "Tensor mask_offsets, Tensor block_tokens) -> (Tensor out, Tensor lse)");
  m.def(
      "attention_with_mass(Tensor q, Tensor k, Tensor v, Tensor row_offsets, Tensor mask_arena, "
      "Tensor mask_offsets, Tensor block_tokens, Tensor mass_offsets, int mass_size) "
      "-> (Tensor out, Tensor lse, Tensor mass)");
  m.def(
      "pooled_mass(Tensor q, Tensor k, int block_tokens, float scale, int first_key_block) -> "
      "Tensor");
  m.def(
      "select_blocks(Tensor(a!) mask_words, Tensor scores, Tensor? generation_scores, str rule, "
      "float ratio, int first_generation_block) -> ()");
  m.def(
      "mask_statistics(Tensor mask_words, Tensor mass, int tokens, int block_tokens) "
      "-> (Tensor kept, Tensor retained)");
  m.def("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor");
  m.def("rope(Tensor(a!) x, Tensor cos, Tensor sin, Tensor row_offsets) -> ()");
  m.def("silu_mul(Tensor gate_up) -> Tensor");
  m.def(
      "candidate_statistics(Tensor logits, Tensor uniforms, float temperature) "
      "-> (Tensor token, Tensor probability, Tensor finite)");
}

TORCH_LIBRARY_IMPL(sparsed, CPU, m) {
  m.impl("attention", AttentionCpu);
  m.impl("attention_with_mass", AttentionWithMassCpu);
  m.impl("pooled_mass", PooledMassCpu);
  m.impl("select_blocks", SelectBlocksCpu);
  m.impl("mask_statistics", MaskStatisticsCpu);
  m.impl("rms_norm", RmsNormCpu);
  m.impl("rope", RopeCpu);
  m.impl("silu_mul", SiluMulCpu);
  m.impl("candidate_statistics", CandidateStatisticsCpu);
}

AttentionResult Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                          const PackedRows& rows) {
  static const auto op = Operator<decltype(AttentionCpu)>("sparsed::attention");
  auto [out, lse] =
      op.call(q, k, v, rows.row_offsets, rows.mask_arena, rows.mask_offsets, rows.block_tokens);
  return {out, lse};
}

AttentionMassResult AttentionWithMass(const Tensor& q, const Tensor& k, const Tensor& v,
                                      const PackedRows& rows, const Tensor& mass_offsets,
                                      int64_t mass_size) {
  static const auto op = Operator<decltype(AttentionWithMassCpu)>("sparsed::attention_with_mass");
  auto [out, lse, mass] = op.call(q, k, v, rows.row_offsets, rows.mask_arena, rows.mask_offsets,
                                  rows.block_tokens, mass_offsets, mass_size);
  return {out, lse, mass};
}

Tensor PooledMass(const Tensor& q, const Tensor& k, int64_t block_tokens, double scale,
                  int64_t first_key_block) {
  static const auto op = Operator<decltype(PooledMassCpu)>("sparsed::pooled_mass");
  return op.call(q, k, block_tokens, scale, first_key_block);
}

void SelectBlocks(const Tensor& mask_words, const Tensor& scores, const Tensor& generation_scores,
                  std::string_view rule, double ratio, int64_t first_generation_block) {
  static const auto op = Operator<decltype(SelectBlocksCpu)>("sparsed::select_blocks");
  const auto optional_scores = generation_scores.defined()
                                   ? std::optional<Tensor>(generation_scores)
                                   : std::optional<Tensor>();
  op.call(mask_words, scores, optional_scores, c10::string_view(rule.data(), rule.size()), ratio,
          first_generation_block);
}

MaskStatistics ComputeMaskStatistics(const Tensor& mask_words, const Tensor& mass, int64_t tokens,
                                     int64_t block_tokens) {
  static const auto op = Operator<decltype(MaskStatisticsCpu)>("sparsed::mask_statistics");
  auto [kept, retained] = op.call(mask_words, mass, tokens, block_tokens);
  return {kept, retained};
}

Tensor RmsNorm(const Tensor& x, const Tensor& weight, double eps) {
  static const auto op = Operator<decltype(RmsNormCpu)>("sparsed::rms_norm");
  return op.call(x, weight, eps);
}

void Rope(const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& row_offsets) {
  static const auto op = Operator<decltype(RopeCpu)>("sparsed::rope");
  op.call(x, cos, sin, row_offsets);
}

Tensor SiluMul(const Tensor& gate_up) {
  static const auto op = Operator<decltype(SiluMulCpu)>("sparsed::silu_mul");
  return op.call(gate_up);
}

CandidateStatistics ComputeCandidateStatistics(const Tensor& logits, const Tensor& uniforms,
                                               double temperature) {
  static const auto op =
      Operator<decltype(CandidateStatisticsCpu)>("sparsed::candidate_statistics");
  auto [token, probability, finite] = op.call(logits, uniforms, temperature);
  return {token, probability, finite};
}

}  // namespace sparsed::kernels
