// SPDX-License-Identifier: Apache-2.0
// Block-sparse flash-style attention on the CPU.
// Keys and values are packed once per call, head by head. The work is cut into tiles of up to four
// strips of 32 queries with the same kept keys; a tile visits them in spans of up to 128, gathered
// from as many blocks as that takes (attention_loops.h), so that its strips share what they load.
// Threads take tiles from a shared counter, so rows of different density share the cores evenly. A
// strip's arithmetic depends on its row alone: packed equals solo bit for bit.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "kernels/block_mask.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/float_rows.h"
#include "kernels/cpu/isa.h"

namespace sparsed::kernels::cpu {
namespace {

constexpr int64_t kTileQueries = 128;  // most queries of a tile
constexpr float kLn2 = 0.693147181f;
constexpr float kLog2E = 1.44269504f;

struct Row {
  int64_t begin;         // first token in the packed batch
  int64_t length;        // tokens
  int64_t block_tokens;  // of its mask
  const int32_t* mask;   // [heads, query_blocks, words], or null for a dense row
  float* mass;           // [heads, query_blocks, key_blocks], or null
  int64_t blocks() const { return BlockCount(length, block_tokens); }
  // Keys whose weights are summed apart.
  int64_t group() const { return mass != nullptr ? std::min(block_tokens, kSpanKeys) : kSpanKeys; }
};

struct Task {
  int32_t row;
  int32_t head;
  int64_t query;  // first query, relative to the row
  // Of one query block if the row has a mask; whole query blocks if it wants its mass, whose cells
  // no two tasks may share.
  int64_t queries;
};

std::vector<float> StripRows(int64_t rows) {  // [rows, kStripQueries]
  return std::vector<float>(static_cast<size_t>(rows * kStripQueries));
}

// What a thread keeps of one strip of its tile.
struct StripBuffers {
  StripBuffers(int64_t head_dim, int64_t longest_row)
      : queries(StripRows(head_dim)),
        out(StripRows(head_dim)),
        max(StripRows(1)),
        sum(StripRows(1)),
        group_sums(StripRows(BlockCount(longest_row, kSpanKeys) * kSpanKeys / kStripQueries)),
        span_max(StripRows(BlockCount(longest_row, kSpanKeys))) {}

  std::vector<float> queries, out, max, sum, group_sums, span_max;
};

struct Scratch {
  Scratch(int64_t head_dim, int64_t longest_row)
      : weights(StripRows(kSpanKeys)),
        tokens(StripRows(head_dim)),
        strips(kTileQueries / kStripQueries, StripBuffers(head_dim, longest_row)) {}

  std::vector<float> weights;
  std::vector<float> tokens;  // [kStripQueries, head_dim]: queries or output on their way
  std::vector<StripBuffers> strips;
};

// Everything a call's tasks share; read-only while they run.
struct Call {
  at::Tensor q;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t tokens = 0;  // of the packed batch
  float scale = 0;     // of the logits, times log2(e)
  int64_t first_key = 0;
  std::vector<Row> rows;
  at::Tensor keys;       // [kv_heads, tokens, head_dim] fp32
  at::Tensor values;     // as keys; undefined as out
  at::Tensor out;        // [tokens, heads, head_dim] as q; undefined: only the mass is wanted
  float* lse = nullptr;  // [heads, tokens]

  const float* Packed(const at::Tensor& x, const Row& row, int64_t kv_head) const {
    return x.const_data_ptr<float>() + (kv_head * tokens + row.begin) * head_dim;
  }
};

// [tokens, kv_heads, head_dim] -> [kv_heads, tokens, head_dim] fp32: a head's keys share pages and
// cache sets with nothing else, and every kept key is converted once, not once per query.
at::Tensor PackHeads(const at::Tensor& x) {
  const int64_t tokens = x.size(0);
  const int64_t width = x.size(2);
  at::Tensor packed = at::empty({x.size(1), tokens, width}, x.options().dtype(at::kFloat));
  float* target = packed.mutable_data_ptr<float>();
  const FloatReader reader(x);
  at::parallel_for(0, x.size(1) * tokens, 256, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      reader.Read(i % tokens * x.stride(0) + i / tokens * x.stride(1), width, target + i * width);
    }
  });
  return packed;
}

// The kept keys of a query block in ascending order, span by span. Dense rows keep all.
class SpanReader {
 public:
  SpanReader(const Row& row, const Call& call, const Task& task)
      : row_(row), next_(call.first_key) {
    if (row.mask == nullptr) return;
    const int64_t blocks = row.blocks();
    words_ = row.mask + (task.head * blocks + task.query / row.block_tokens) * MaskRowWords(blocks);
  }

  bool Next(Span* span) {
    span->keys = 0;
    span->runs = 0;
    while (span->keys < kSpanKeys && next_ < row_.length) {
      const int64_t block = next_ / row_.block_tokens;
      const int64_t block_end = std::min((block + 1) * row_.block_tokens, row_.length);
      const int64_t count = std::min(block_end - next_, kSpanKeys - span->keys);
      if (words_ == nullptr || MaskBit(words_, block)) {
        Append(next_, count, span);
        next_ += count;
      } else {
        next_ = block_end;
      }
    }
    return span->keys > 0;
  }

 private:
  static void Append(int64_t begin, int64_t count, Span* span) {
    span->keys += count;
    if (span->runs > 0) {
      KeyRun& last = span->run[span->runs - 1];
      if (last.begin + last.count == begin) {
        last.count += count;
        return;
      }
    }
    span->run[span->runs++] = {begin, count};
  }

  const Row& row_;
  const int32_t* words_ = nullptr;
  int64_t next_;
};

// A strip of a tile: where it stands and its state.
struct PlacedStrip {
  const Row* row;
  int64_t head;
  int64_t query;  // first query, relative to the row
  Strip state;
  const float* group_sums;  // of all spans
  const float* span_max;    // [spans, kStripQueries] the running maximum after each span
};

// mass[query block, key block] += this strip's queries' shares, once all spans are known.
void AddMass(const Call& call, const PlacedStrip& strip) {
  const Row& row = *strip.row;
  const int64_t group_keys = strip.state.group;
  const int64_t key_blocks = row.blocks() - call.first_key / row.block_tokens;
  const int64_t query_block = strip.query / row.block_tokens;
  const int64_t block_queries =
      std::min(row.block_tokens, row.length - query_block * row.block_tokens);
  float* cells = row.mass + (strip.head * row.blocks() + query_block) * key_blocks;
  float share[kStripQueries] = {};
  for (int64_t lane = 0; lane < strip.state.lanes; ++lane) {
    share[lane] = 1.0f / (strip.state.sum[lane] * static_cast<float>(block_queries));
  }
  const int64_t groups = BlockCount(row.length - call.first_key, group_keys);
  const int64_t span_groups = kSpanKeys / group_keys;
  float totals[kSpanKeys / kStripQueries];
  for (int64_t group = 0; group < groups; group += span_groups) {
    const int64_t count = std::min(span_groups, groups - group);
    Loops().fold_groups(strip.group_sums + group * kStripQueries, count,
                        strip.span_max + group / span_groups * kStripQueries, strip.state.max,
                        share, totals);
    for (int64_t g = 0; g < count; ++g) {
      cells[(group + g) * group_keys / row.block_tokens] += totals[g];
    }
  }
}

void StoreOutput(const Call& call, const PlacedStrip& strip, float* tokens) {
  const Strip& state = strip.state;
  const int64_t first = strip.row->begin + strip.query;
  float factor[kStripQueries] = {};
  for (int64_t lane = 0; lane < state.lanes; ++lane) {
    const float sum = state.sum[lane];
    const bool empty = sum == 0.0f;  // no kept block
    call.lse[strip.head * call.tokens + first + lane] =
        empty ? -std::numeric_limits<float>::infinity() : (state.max[lane] + std::log2(sum)) * kLn2;
    factor[lane] = empty ? 0.0f : 1.0f / sum;
  }
  for (int64_t d = 0; d < call.head_dim; ++d) {
    for (int64_t lane = 0; lane < kStripQueries; ++lane) {
      state.out[d * kStripQueries + lane] *= factor[lane];
    }
  }
  Transpose(state.out, kStripQueries, call.head_dim, state.lanes, tokens, call.head_dim);
  const FloatWriter writer(call.out);
  for (int64_t lane = 0; lane < state.lanes; ++lane) {
    writer.Write(((first + lane) * call.heads + strip.head) * call.head_dim, call.head_dim,
                 tokens + lane * call.head_dim);
  }
}

// Queries as lanes, scaled; zeros beyond the last.
void LoadQueries(const Call& call, const PlacedStrip& strip, float* tokens, float* queries) {
  const FloatReader reader(call.q);
  const int64_t first = strip.row->begin + strip.query;
  for (int64_t lane = 0; lane < strip.state.lanes; ++lane) {
    float* token = tokens + lane * call.head_dim;
    reader.Read((first + lane) * call.q.stride(0) + strip.head * call.q.stride(1), call.head_dim,
                token);
    for (int64_t d = 0; d < call.head_dim; ++d) token[d] *= call.scale;
  }
  std::fill(tokens + strip.state.lanes * call.head_dim, tokens + kStripQueries * call.head_dim,
            0.0f);
  Transpose(tokens, call.head_dim, kStripQueries, call.head_dim, queries, kStripQueries);
}

PlacedStrip StartStrip(const Call& call, const Task& task, int64_t query, Scratch* scratch) {
  const Row& row = call.rows[static_cast<size_t>(task.row)];
  const int64_t kv_head = task.head * call.kv_heads / call.heads;
  StripBuffers& buffers =
      scratch->strips[static_cast<size_t>((query - task.query) / kStripQueries)];
  std::fill(buffers.max.begin(), buffers.max.end(), -std::numeric_limits<float>::infinity());
  std::fill(buffers.sum.begin(), buffers.sum.end(), 0.0f);
  std::fill(buffers.out.begin(), buffers.out.end(), 0.0f);
  Strip state;
  state.lanes = std::min(kStripQueries, row.length - query);
  state.head_dim = call.head_dim;
  state.group = row.group();
  state.queries = buffers.queries.data();
  state.keys = call.Packed(call.keys, row, kv_head);
  state.values = call.out.defined() ? call.Packed(call.values, row, kv_head) : nullptr;
  state.weights = scratch->weights.data();
  state.max = buffers.max.data();
  state.sum = buffers.sum.data();
  state.group_sums = buffers.group_sums.data();
  state.out = buffers.out.data();
  const PlacedStrip strip{&row, task.head, query, state, state.group_sums, buffers.span_max.data()};
  LoadQueries(call, strip, scratch->tokens.data(), buffers.queries.data());
  return strip;
}

// A tile: the strips of a task, at most kTileQueries queries.
void RunTile(const Call& call, const Task& task, Scratch* scratch) {
  const Row& row = call.rows[static_cast<size_t>(task.row)];
  std::array<PlacedStrip, kTileQueries / kStripQueries> strips;
  size_t count = 0;
  for (int64_t query = task.query; query < task.query + task.queries; query += kStripQueries) {
    strips[count++] = StartStrip(call, task, query, scratch);
  }
  SpanReader reader(row, call, task);
  int64_t spans = 0;
  for (Span span; reader.Next(&span); ++spans) {
    for (size_t i = 0; i < count; ++i) {
      Strip& state = strips[i].state;
      Loops().attend(state, span);
      if (row.mass == nullptr) continue;
      std::copy_n(state.max, kStripQueries,
                  scratch->strips[i].span_max.data() + spans * kStripQueries);
      state.group_sums += kSpanKeys / state.group * kStripQueries;
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (row.mass != nullptr) AddMass(call, strips[i]);
    if (call.out.defined()) StoreOutput(call, strips[i], scratch->tokens.data());
  }
}

// A task: one tile, or the tiles of a large query block whose mass cells they share.
void RunTask(const Call& call, const Task& task, Scratch* scratch) {
  const int64_t end = task.query + task.queries;
  for (int64_t query = task.query; query < end; query += kTileQueries) {
    RunTile(call, {task.row, task.head, query, std::min(kTileQueries, end - query)}, scratch);
  }
}

// Large tiles load less, small ones spread better over many cores. Bits do not depend on it.
int64_t TileQueries(const Call& call) {
  const int64_t tiles = call.tokens * call.heads / kTileQueries;
  return tiles >= int64_t{4} * at::get_num_threads() ? kTileQueries : kStripQueries;
}

std::vector<Task> MakeTasks(const Call& call) {
  std::vector<Task> tasks;
  const int64_t tile = TileQueries(call);
  for (size_t r = 0; r < call.rows.size(); ++r) {
    const Row& row = call.rows[r];
    const int64_t most = row.mass != nullptr   ? std::max(tile, row.block_tokens)
                         : row.mask != nullptr ? std::min(tile, row.block_tokens)
                                               : tile;
    for (int32_t head = 0; head < call.heads; ++head) {
      for (int64_t query = 0; query < row.length; query += most) {
        tasks.push_back({static_cast<int32_t>(r), head, query, std::min(most, row.length - query)});
      }
    }
  }
  return tasks;
}

void RunTasks(const Call& call) {
  const std::vector<Task> tasks = MakeTasks(call);
  int64_t longest_row = 0;
  for (const Row& row : call.rows) longest_row = std::max(longest_row, row.length);
  std::atomic<size_t> next{0};
  at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t, int64_t) {
    Scratch scratch(call.head_dim, longest_row);
    for (size_t i = next.fetch_add(1); i < tasks.size(); i = next.fetch_add(1)) {
      RunTask(call, tasks[i], &scratch);
    }
  });
}

Call MakeCall(const Tensor& q, const Tensor& k, double scale) {
  Call call;
  call.q = q;
  call.heads = q.size(1);
  call.kv_heads = k.size(1);
  call.head_dim = q.size(2);
  call.tokens = q.size(0);
  call.scale = static_cast<float>(scale) * kLog2E;
  call.keys = PackHeads(k);
  return call;
}

}  // namespace

AttentionMassResult AttentionWithMass(const Tensor& q, const Tensor& k, const Tensor& v,
                                      const PackedRows& rows, const Tensor& mass_offsets,
                                      int64_t mass_size) {
  Call call = MakeCall(q, k, 1.0 / std::sqrt(static_cast<double>(q.size(2))));
  Tensor out = at::empty(q.sizes(), q.options());
  const auto sums = q.options().dtype(at::kFloat);
  Tensor lse = at::empty({call.heads, call.tokens}, sums);
  Tensor mass = at::zeros({mass_size}, sums);
  const auto offsets = rows.row_offsets.accessor<int64_t, 1>();
  const auto masks = rows.mask_offsets.accessor<int64_t, 1>();
  const auto blocks = rows.block_tokens.accessor<int64_t, 1>();
  const auto masses = mass_offsets.accessor<int64_t, 1>();
  for (int64_t r = 0; r < masks.size(0); ++r) {
    Row row{};
    row.begin = offsets[r];
    row.length = offsets[r + 1] - offsets[r];
    row.block_tokens = blocks[r];
    if (masks[r] >= 0) row.mask = rows.mask_arena.const_data_ptr<int32_t>() + masks[r];
    if (masses[r] >= 0) row.mass = mass.mutable_data_ptr<float>() + masses[r];
    call.rows.push_back(row);
  }
  call.out = out;
  call.lse = lse.mutable_data_ptr<float>();
  call.values = PackHeads(v);
  RunTasks(call);
  return {out, lse, mass};
}

AttentionResult Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                          const PackedRows& rows) {
  const Tensor no_mass = at::full(rows.mask_offsets.sizes(), -1, rows.mask_offsets.options());
  const AttentionMassResult result = cpu::AttentionWithMass(q, k, v, rows, no_mass, 0);
  return {result.out, result.lse};
}

Tensor PooledMass(const Tensor& q, const Tensor& k, int64_t block_tokens, double scale,
                  int64_t first_key_block) {
  Call call = MakeCall(q, k, scale);
  call.first_key = first_key_block * block_tokens;
  Row row{};
  row.length = q.size(0);
  row.block_tokens = block_tokens;
  Tensor mass = at::zeros({call.heads, row.blocks(), row.blocks() - first_key_block},
                          q.options().dtype(at::kFloat));
  row.mass = mass.mutable_data_ptr<float>();
  call.rows.push_back(row);
  RunTasks(call);
  return mass;
}

}  // namespace sparsed::kernels::cpu
