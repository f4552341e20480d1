// SPDX-License-Identifier: Apache-2.0
// What a device without kernels of its own runs (reference/fallback.cc), entered as for CUDA but
// with CPU tensors: same checks, same results as the CPU's kernels.
#include <cmath>
#include <optional>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "kernels/attention.h"
#include "kernels/block_mask.h"
#include "kernels/fused.h"
#include "kernels/ops/lists.h"
#include "kernels/reorder.h"
#include "kernels/score.h"
#include "kernels/select.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tensors.h"

namespace sparsed::kernels {
namespace {

using at::Tensor;
using testing::MaxError;

// Calls the operator that a CUDA tensor would reach.
template <class Signature, class... Arguments>
auto CallFallback(const char* name, Arguments&&... arguments) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
  return op.redispatch(c10::DispatchKeySet(c10::DispatchKey::CUDA),
                       std::forward<Arguments>(arguments)...);
}

TEST(FallbackTest, AttentionAndMassMatch) {
  at::manual_seed(1);
  const Tensor q = at::randn({300, 4, 32});
  const Tensor k = at::randn({300, 2, 32});
  const Tensor v = at::randn({300, 2, 32});
  PackedRows rows = testing::DenseRows({100, 200}, 64);
  testing::SetMask(0, testing::RandomMask(4, 100, 64, 0.5), 64, &rows);
  const Tensor mass_offsets = testing::Longs({-1, 7});
  const AttentionMassResult kernel = AttentionWithMass(q, k, v, rows, mass_offsets, 7 + 64 + 5);
  const auto row_offsets = ops::TensorAsList(rows.row_offsets, "row_offsets");
  const auto mask_offsets = ops::TensorAsList(rows.mask_offsets, "mask_offsets");
  const auto block_tokens = ops::TensorAsList(rows.block_tokens, "block_tokens");
  using Attend =
      std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, at::IntArrayRef,
                                 const Tensor&, at::IntArrayRef, at::IntArrayRef);
  const auto [out, lse] = CallFallback<Attend>("sparsed::attention", q, k, v, row_offsets,
                                               rows.mask_arena, mask_offsets, block_tokens);
  EXPECT_LE(MaxError(out, kernel.out), 1e-5);
  EXPECT_LE(MaxError(lse, kernel.lse), 1e-5);
  using AttendMass = std::tuple<Tensor, Tensor, Tensor>(
      const Tensor&, const Tensor&, const Tensor&, at::IntArrayRef, const Tensor&, at::IntArrayRef,
      at::IntArrayRef, at::IntArrayRef, int64_t);
  const auto [mass_out, mass_lse, mass] = CallFallback<AttendMass>(
      "sparsed::attention_with_mass", q, k, v, row_offsets, rows.mask_arena, mask_offsets,
      block_tokens, ops::TensorAsList(mass_offsets, "mass_offsets"), 7 + 64 + 5);
  EXPECT_LE(MaxError(mass_out, kernel.out), 1e-5);
  EXPECT_LE(MaxError(mass_lse, kernel.lse), 1e-5);
  EXPECT_LE(MaxError(mass, kernel.mass), 1e-6);
  const Tensor pooled =
      CallFallback<Tensor(const Tensor&, const Tensor&, int64_t, double, int64_t)>(
          "sparsed::pooled_mass", q, k, 64, 0.1, 1);
  EXPECT_LE(MaxError(pooled, PooledMass(q, k, 64, 0.1, 1)), 1e-6);
}

TEST(FallbackTest, SelectionAndItsStatisticsMatch) {
  at::manual_seed(2);
  const int64_t tokens = 2100;  // 33 blocks
  const Tensor scores = at::softmax(at::randn({2, 33, 33}), -1);
  const Tensor generation = at::rand({2, 33, 13});
  for (const std::string_view rule : SelectionRuleNames()) {
    const Tensor kernel = at::full({2 * 33 * 2}, -1, at::kInt);
    const Tensor fallback = at::full({2, 33, 2}, -1, at::kInt);
    SelectBlocks(kernel, scores, generation, {rule, 0.3, 20, 0.5});
    using Select = void(const Tensor&, const Tensor&, const std::optional<Tensor>&,
                        c10::string_view, double, int64_t, double);
    CallFallback<Select>("sparsed::select_blocks", fallback, scores, std::optional(generation),
                         c10::string_view(rule.data(), rule.size()), 0.3, 20, 0.5);
    EXPECT_TRUE(at::equal(kernel, fallback.flatten())) << rule;

    const MaskStatistics expected = ComputeMaskStatistics(kernel, scores, tokens, 64);
    const auto [kept, retained] =
        CallFallback<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, int64_t, int64_t)>(
            "sparsed::mask_statistics", kernel, scores, tokens, 64);
    EXPECT_TRUE(at::equal(kept, expected.kept));
    EXPECT_LE(MaxError(retained, expected.retained), 1e-12);
    EXPECT_TRUE(at::equal(
        CallFallback<Tensor(const Tensor&, int64_t)>("sparsed::count_kept_blocks", kernel, 2),
        expected.kept));
  }
}

TEST(FallbackTest, SampledMassScoresAndOrdersMatch) {
  at::manual_seed(3);
  const Tensor q = at::randn({200, 4, 32});
  const Tensor k = at::randn({200, 2, 32});
  const Tensor words = at::randint(16, {4 * 4}, at::kInt);
  const Tensor queries = testing::Longs({0, 63, 64, 199});
  const Tensor sampled =
      CallFallback<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t)>(
          "sparsed::sample_retained_mass", q, k, words, queries, 64);
  EXPECT_LE(MaxError(sampled, SampleRetainedMass(q, k, words, queries, 64)), 1e-6);

  using Statistics = std::tuple<Tensor, Tensor>(const Tensor&, int64_t);
  const auto [q_mean, q_variance] = CallFallback<Statistics>("sparsed::block_statistics", q, 64);
  const auto [k_mean, k_variance] = CallFallback<Statistics>("sparsed::block_statistics", k, 64);
  const BlockStatistics expected = ComputeBlockStatistics(q, 64);
  EXPECT_LE(MaxError(q_mean, expected.mean), 1e-6);
  EXPECT_LE(MaxError(q_variance, expected.variance), 1e-5);
  const Tensor logits = CallFallback<Tensor(const Tensor&, const Tensor&, const Tensor&,
                                            const Tensor&, int64_t, int64_t, bool)>(
      "sparsed::block_logits", q_mean, q_variance, k_mean, k_variance, 200, 64, true);
  EXPECT_LE(MaxError(logits, BlockLogits(expected, ComputeBlockStatistics(k, 64), 200, 64, true)),
            1e-5);

  const Tensor order = CallFallback<Tensor(const Tensor&, int64_t)>("sparsed::norm_order", q, 128);
  EXPECT_TRUE(at::equal(order, NormOrder(q, 128)));
  using Move = void(const Tensor&, const Tensor&, const Tensor&);
  Tensor gathered = at::empty_like(q);
  Tensor expected_rows = at::empty_like(q);
  CallFallback<Move>("sparsed::gather_rows", gathered, q, order);
  GatherRows(expected_rows, q, order);
  EXPECT_TRUE(at::equal(gathered, expected_rows));
  CallFallback<Move>("sparsed::scatter_rows", expected_rows, gathered, order);
  EXPECT_TRUE(at::equal(expected_rows, q));
}

TEST(FallbackTest, SmallOperatorsMatch) {
  at::manual_seed(4);
  const Tensor x = at::randn({10, 64});
  const Tensor weight = at::randn({64});
  EXPECT_LE(MaxError(CallFallback<Tensor(const Tensor&, const Tensor&, double)>("sparsed::rms_norm",
                                                                                x, weight, 1e-5),
                     RmsNorm(x, weight, 1e-5)),
            1e-5);
  EXPECT_LE(MaxError(CallFallback<Tensor(const Tensor&)>("sparsed::silu_mul", x), SiluMul(x)),
            1e-5);
  const Tensor angles = at::randn({10, 8});
  const Tensor cos = angles.cos();
  const Tensor sin = angles.sin();
  Tensor rotated = at::randn({10, 4, 16});
  Tensor expected = rotated.clone();
  const Tensor offsets = testing::Longs({0, 3, 10});
  CallFallback<void(const Tensor&, const Tensor&, const Tensor&, at::IntArrayRef)>(
      "sparsed::rope", rotated, cos, sin, ops::TensorAsList(offsets, "row_offsets"));
  Rope(expected, cos, sin, offsets);
  EXPECT_LE(MaxError(rotated, expected), 1e-6);
  const Tensor uniforms = at::rand({10}, at::kDouble);
  const auto [token, probability, finite] =
      CallFallback<std::tuple<Tensor, Tensor, Tensor>(const Tensor&, const Tensor&, double)>(
          "sparsed::candidate_statistics", x, uniforms, 0.7);
  const CandidateStatistics statistics = ComputeCandidateStatistics(x, uniforms, 0.7);
  EXPECT_TRUE(at::equal(token, statistics.token));
  EXPECT_LE(MaxError(probability, statistics.probability), 1e-6);
  EXPECT_TRUE(finite.all().item<bool>());
}

TEST(FallbackTest, BadArgumentsAreRefusedAsOnTheCpu) {
  EXPECT_THROW((CallFallback<Tensor(const Tensor&, int64_t)>("sparsed::norm_order",
                                                             at::rand({2, 2, 2}), -1)),
               c10::ValueError);
}

}  // namespace
}  // namespace sparsed::kernels
