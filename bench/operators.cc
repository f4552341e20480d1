// SPDX-License-Identifier: Apache-2.0
// Time of the attention operators on the CPU beside ATen's dense SDPA, on random inputs.
//   OMP_NUM_THREADS=2 operators_bench --benchmark_filter='length:4096'
// Arguments of a case: row length; block size; density in percent. 6 heads x 64, one row.
#include <cstdint>
#include <initializer_list>
#include <string>

#include <benchmark/benchmark.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "kernels/attention.h"
#include "kernels/block_mask.h"
#include "kernels/cpu/isa.h"
#include "kernels/select.h"

namespace sparsed::kernels {
namespace {

constexpr int64_t kHeads = 6;
constexpr int64_t kHeadDim = 64;
constexpr int64_t kPromptPercent = 90;  // of the row, for selections that rank its parts apart

struct Inputs {
  Inputs(int64_t length, at::ScalarType dtype) {
    at::manual_seed(1);
    const auto random = [&] { return at::randn({length, kHeads, kHeadDim}).to(dtype); };
    q = random();
    k = random();
    v = random();
  }
  at::Tensor q, k, v;  // [tokens, heads, head_dim]
};

at::Tensor Longs(std::initializer_list<int64_t> values) {
  return at::tensor(at::IntArrayRef(values), at::TensorOptions().dtype(at::kLong));
}

PackedRows DenseRow(int64_t length, int64_t block) {
  return {Longs({0, length}), at::empty({0}, at::kInt), Longs({-1}), Longs({block})};
}

at::Tensor EmptyMask(int64_t length, int64_t block) {
  return at::zeros({MaskWords(kHeads, length, block)}, at::kInt);
}

Selection SelectionOf(int64_t length, int64_t block, int64_t percent) {
  Selection selection{kTopRatio, static_cast<double>(percent) / 100};
  selection.first_generation_block = BlockCount(length, block) * kPromptPercent / 100;
  return selection;
}

// The best blocks of random scores: as many per query block as the selection keeps.
PackedRows SparseRow(int64_t length, int64_t block, int64_t percent) {
  const int64_t blocks = BlockCount(length, block);
  Selection selection = SelectionOf(length, block, percent);
  selection.rule = kTopK;
  PackedRows rows = DenseRow(length, block);
  rows.mask_arena = EmptyMask(length, block);
  rows.mask_offsets = Longs({0});
  SelectBlocks(rows.mask_arena, at::rand({kHeads, blocks, blocks}), {}, selection);
  return rows;
}

template <at::ScalarType kType>
void AtenSdpa(benchmark::State& state) {
  const Inputs x(state.range(0), kType);
  const auto heads_first = [](const at::Tensor& t) { return t.transpose(0, 1).unsqueeze(0); };
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        at::scaled_dot_product_attention(heads_first(x.q), heads_first(x.k), heads_first(x.v)));
  }
}

template <at::ScalarType kType>
void DenseAttention(benchmark::State& state) {
  const Inputs x(state.range(0), kType);
  const PackedRows rows = DenseRow(state.range(0), state.range(1));
  for (auto _ : state) benchmark::DoNotOptimize(Attention(x.q, x.k, x.v, rows));
}

template <at::ScalarType kType>
void SparseAttention(benchmark::State& state) {
  const Inputs x(state.range(0), kType);
  const PackedRows rows = SparseRow(state.range(0), state.range(1), state.range(2));
  const double blocks = static_cast<double>(BlockCount(state.range(0), state.range(1)));
  state.counters["density"] =
      CountKeptBlocks(rows.mask_arena, kHeads).sum().item<double>() / (kHeads * blocks * blocks);
  for (auto _ : state) benchmark::DoNotOptimize(Attention(x.q, x.k, x.v, rows));
}

// A dense attention that builds the next steps' mask on the way, as a SparseD step does. What it
// takes beyond DenseAttention is the price of scoring and selection.
void DenseAttentionScoringSelection(benchmark::State& state) {
  const int64_t length = state.range(0), block = state.range(1);
  const Inputs x(length, at::kFloat);
  const PackedRows rows = DenseRow(length, block);
  const int64_t blocks = BlockCount(length, block);
  const at::Tensor mask = EmptyMask(length, block);
  const Selection selection = SelectionOf(length, block, state.range(2));
  for (auto _ : state) {
    const AttentionMassResult result =
        AttentionWithMass(x.q, x.k, x.v, rows, Longs({0}), kHeads * blocks * blocks);
    SelectBlocks(mask, result.mass.view({kHeads, blocks, blocks}), {}, selection);
    benchmark::DoNotOptimize(mask.data_ptr());
  }
}

void Select(benchmark::State& state) {
  const int64_t length = state.range(0), block = state.range(1);
  const int64_t blocks = BlockCount(length, block);
  at::manual_seed(1);
  const at::Tensor mass = at::rand({kHeads, blocks, blocks});
  const at::Tensor mask = EmptyMask(length, block);
  const Selection selection = SelectionOf(length, block, state.range(2));
  for (auto _ : state) {
    SelectBlocks(mask, mass, {}, selection);
    benchmark::DoNotOptimize(mask.data_ptr());
  }
}

void Lengths(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("length")->Arg(1024)->Arg(4096);
}

void LengthsBlocks(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"length", "block"})->ArgsProduct({{1024, 4096}, {32, 64, 128}});
}

void LengthsBlocksDensities(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"length", "block", "percent"})
      ->ArgsProduct({{1024, 4096}, {32, 64, 128}, {5, 10, 30, 50, 100}});
}

void LengthsBlocksOneDensity(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"length", "block", "percent"})
      ->ArgsProduct({{1024, 4096}, {32, 64, 128}, {30}});
}

BENCHMARK(AtenSdpa<at::kFloat>)->Apply(Lengths)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(DenseAttention<at::kFloat>)
    ->Apply(LengthsBlocks)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(SparseAttention<at::kFloat>)
    ->Apply(LengthsBlocksDensities)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(DenseAttentionScoringSelection)
    ->Apply(LengthsBlocksOneDensity)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(Select)->Apply(LengthsBlocksOneDensity)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(AtenSdpa<at::kBFloat16>)->Apply(Lengths)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(DenseAttention<at::kBFloat16>)
    ->Apply(LengthsBlocks)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(SparseAttention<at::kBFloat16>)
    ->Apply(LengthsBlocksOneDensity)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace sparsed::kernels

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::AddCustomContext("threads", std::to_string(at::get_num_threads()));
  benchmark::AddCustomContext("instruction set", sparsed::kernels::cpu::Loops().name);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
