// SPDX-License-Identifier: Apache-2.0
// Times of the operators on one row, beside ATen's scaled_dot_product_attention. Inputs are random
// normal, masks keep random key blocks. 6 heads of 64, fp32 unless the name says bf16; threads as
// ATen has them (OMP_NUM_THREADS).
//   operators_bench --benchmark_filter=4096 --benchmark_repetitions=5
#include <cmath>
#include <initializer_list>
#include <optional>
#include <string_view>

#include <benchmark/benchmark.h>

#include <ATen/ATen.h>

#include "kernels/attention.h"
#include "kernels/block_mask.h"
#include "kernels/score.h"
#include "kernels/select.h"

namespace sparsed::kernels {
namespace {

constexpr int64_t kHeads = 6;
constexpr int64_t kHeadDim = 64;
constexpr int64_t kBlockTokens = 128;

at::Tensor Longs(std::initializer_list<int64_t> values) { return at::tensor(values, at::kLong); }

struct Inputs {
  explicit Inputs(int64_t tokens, at::ScalarType dtype = at::kFloat) {
    at::manual_seed(0);
    for (at::Tensor* x : {&q, &k, &v}) *x = at::randn({tokens, kHeads, kHeadDim}).to(dtype);
  }
  at::Tensor q, k, v;  // [tokens, kHeads, kHeadDim]
};

// One row of `tokens`; dense where there are no mask words.
PackedRows OneRow(int64_t tokens, int64_t block_tokens,
                  const std::optional<at::Tensor>& mask_words = std::nullopt) {
  return {Longs({0, tokens}), mask_words.value_or(at::empty({0}, at::kInt)),
          Longs({mask_words.has_value() ? 0 : -1}), Longs({block_tokens})};
}

at::Tensor EmptyMask(int64_t tokens, int64_t block_tokens) {
  return at::zeros({MaskWords(kHeads, tokens, block_tokens)}, at::kInt);
}

at::Tensor RandomScores(int64_t tokens, int64_t block_tokens) {
  const int64_t blocks = BlockCount(tokens, block_tokens);
  return at::rand({kHeads, blocks, blocks});
}

at::Tensor RandomMask(int64_t tokens, int64_t block_tokens, double density) {
  at::Tensor words = EmptyMask(tokens, block_tokens);
  SelectBlocks(words, RandomScores(tokens, block_tokens), {}, {.rule = kTopK, .budget = density});
  return words;
}

// GFLOP/s of what was computed, and the share of blocks that it was.
void ReportWork(benchmark::State& state, int64_t tokens, double density) {
  const double flops =
      4.0 * density * static_cast<double>(tokens * tokens) * double{kHeads * kHeadDim};
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops / 1e9, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["density"] = density;
}

void Sdpa(benchmark::State& state, at::ScalarType dtype) {
  const int64_t tokens = state.range(0);
  const Inputs x(tokens, dtype);
  const auto heads_first = [](const at::Tensor& t) {
    return t.transpose(0, 1).unsqueeze(0).contiguous();
  };
  const at::Tensor q = heads_first(x.q), k = heads_first(x.k), v = heads_first(x.v);
  for (auto _ : state) benchmark::DoNotOptimize(at::scaled_dot_product_attention(q, k, v));
  ReportWork(state, tokens, 1);
}

void Dense(benchmark::State& state, at::ScalarType dtype) {
  const int64_t tokens = state.range(0);
  const Inputs x(tokens, dtype);
  const PackedRows rows = OneRow(tokens, kBlockTokens);
  for (auto _ : state) benchmark::DoNotOptimize(Attention(x.q, x.k, x.v, rows));
  ReportWork(state, tokens, 1);
}

void Sparse(benchmark::State& state, at::ScalarType dtype) {
  const int64_t tokens = state.range(0);
  const int64_t block_tokens = state.range(1);
  const Inputs x(tokens, dtype);
  const at::Tensor mask =
      RandomMask(tokens, block_tokens, static_cast<double>(state.range(2)) / 100);
  const PackedRows rows = OneRow(tokens, block_tokens, mask);
  for (auto _ : state) benchmark::DoNotOptimize(Attention(x.q, x.k, x.v, rows));
  const auto blocks = static_cast<double>(BlockCount(tokens, block_tokens));
  ReportWork(state, tokens,
             CountKeptBlocks(mask, kHeads).sum().item<double>() / (blocks * blocks * kHeads));
}

// A build step of SparseD: dense attention, its mass, the mask. Beside Dense this is what the mask
// costs.
void DenseWithMask(benchmark::State& state) {
  const int64_t tokens = state.range(0);
  const int64_t block_tokens = state.range(1);
  const Inputs x(tokens);
  const PackedRows rows = OneRow(tokens, block_tokens);
  const int64_t blocks = BlockCount(tokens, block_tokens);
  const int64_t size = kHeads * blocks * blocks;
  const at::Tensor words = EmptyMask(tokens, block_tokens);
  for (auto _ : state) {
    const at::Tensor mass = AttentionWithMass(x.q, x.k, x.v, rows, Longs({0}), size)
                                .mass.view({kHeads, blocks, blocks});
    SelectBlocks(words, mass, {},
                 {.rule = kTopRatio, .budget = 0.3, .first_generation_block = blocks - 1});
    benchmark::DoNotOptimize(ComputeMaskStatistics(words, mass, tokens, block_tokens));
  }
  ReportWork(state, tokens, 1);
}

// The scores of BA-Att, which need no dense attention.
void StatisticsScores(benchmark::State& state) {
  const int64_t tokens = state.range(0);
  const int64_t block_tokens = state.range(1);
  const Inputs x(tokens);
  for (auto _ : state) {
    benchmark::DoNotOptimize(BlockLogits(ComputeBlockStatistics(x.q, block_tokens),
                                         ComputeBlockStatistics(x.k, block_tokens), tokens,
                                         block_tokens, /*covariance=*/true));
  }
}

void Select(benchmark::State& state, std::string_view rule) {
  const int64_t tokens = state.range(0);
  const int64_t block_tokens = state.range(1);
  const at::Tensor scores = at::softmax(RandomScores(tokens, block_tokens), -1);
  const at::Tensor words = EmptyMask(tokens, block_tokens);
  for (auto _ : state) SelectBlocks(words, scores, {}, {.rule = rule, .budget = 0.3});
}

// Every length at its blocks and, in hundredths, densities.
void Grid(benchmark::internal::Benchmark* bench) {
  bench->ArgsProduct({{1024, 4096}, {32, 64, 128, 256}, {10, 30, 50}})
      ->ArgNames({"tokens", "block", "percent"});
}

void Blocks(benchmark::internal::Benchmark* bench) {
  bench->ArgsProduct({{4096}, {32, 64, 128, 256}})->ArgNames({"tokens", "block"});
}

void Lengths(benchmark::internal::Benchmark* bench) {
  bench->ArgsProduct({{1024, 4096}})->ArgNames({"tokens"});
}

#define SPARSED_BENCHMARK(name, arguments, ...) \
  BENCHMARK_CAPTURE(name, __VA_ARGS__)          \
      ->Apply(arguments)                        \
      ->Unit(benchmark::kMillisecond)           \
      ->UseRealTime()

SPARSED_BENCHMARK(Sdpa, Lengths, fp32, at::kFloat);
SPARSED_BENCHMARK(Sdpa, Lengths, bf16, at::kBFloat16);
SPARSED_BENCHMARK(Dense, Lengths, fp32, at::kFloat);
SPARSED_BENCHMARK(Dense, Lengths, bf16, at::kBFloat16);
SPARSED_BENCHMARK(Sparse, Grid, fp32, at::kFloat);
SPARSED_BENCHMARK(Sparse, Grid, bf16, at::kBFloat16);
SPARSED_BENCHMARK(Select, Blocks, top_ratio, kTopRatio);
SPARSED_BENCHMARK(Select, Blocks, top_k, kTopK);
SPARSED_BENCHMARK(Select, Blocks, mass, kMass);
BENCHMARK(DenseWithMask)->Apply(Blocks)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(StatisticsScores)->Apply(Blocks)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace sparsed::kernels

BENCHMARK_MAIN();
