// SPDX-License-Identifier: Apache-2.0
// Block-sparse flash-style attention on the CPU.
// Keys are packed once per call into panels that the inner loops read as whole vectors, values into
// padded rows. A task is one (row, head, query tile); threads take tasks from a shared counter, so
// rows of different density share the cores evenly. A task's arithmetic depends on its row alone:
// packed equals solo bit for bit.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "kernels/block_mask.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"

namespace sparsed::kernels::cpu {
namespace {

constexpr int64_t kTile =
    128;  // most queries and most keys of one tile; a multiple of every block size
constexpr float kLn2 = 0.693147181f;
constexpr float kLog2E = 1.44269504f;

struct Row {
  int64_t begin;         // first token in the packed batch
  int64_t length;        // tokens
  int64_t block_tokens;  // of its mask
  const int32_t* mask;   // [heads, query_blocks, words], or null for a dense row
  float* mass;           // [heads, query_blocks, key_blocks], or null
  int64_t first_panel;   // in the packed keys
  int64_t panels;
  int64_t blocks() const { return BlockCount(length, block_tokens); }
  int64_t query_tile() const { return mask != nullptr ? block_tokens : kTile; }
};

struct Task {
  int32_t row;
  int32_t head;
  int64_t query;  // first query, relative to the row
};

struct Span {  // keys [begin, begin + count) of a row
  int64_t begin;
  int64_t count;
};

struct Scratch {
  std::vector<float> logits, out, max, sum, rescale, group_sums, block_sums, span_max;

  void Resize(int64_t width, int64_t blocks, int64_t spans) {
    const auto grow = [](std::vector<float>* v, int64_t n) {
      if (static_cast<int64_t>(v->size()) < n) v->resize(static_cast<size_t>(n));
    };
    grow(&logits, kTile * kTile);
    grow(&out, kTile * width);
    grow(&max, kTile);
    grow(&sum, kTile);
    grow(&rescale, kTile);
    grow(&group_sums, kTile * kTile / kPanelKeys);
    grow(&block_sums, kTile * blocks);
    grow(&span_max, kTile * spans);
  }
};

// Everything a call's tasks share; read-only while they run.
struct Call {
  const float* q = nullptr;
  int64_t q_token_stride = 0;
  int64_t q_head_stride = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t width = 0;   // head_dim rounded up to whole vectors
  int64_t tokens = 0;  // of the packed batch
  float scale = 0;     // of the logits, times log2(e)
  int64_t first_key = 0;
  std::vector<Row> rows;
  at::Tensor packed_keys;    // [all panels * kv_heads][head_dim][kPanelKeys]
  at::Tensor packed_values;  // [kv_heads][tokens][width]; undefined: only the mass is wanted
  float* out = nullptr;      // [tokens, heads, head_dim]
  float* lse = nullptr;      // [heads, tokens]

  const float* Keys(const Row& row, int64_t kv_head) const {
    return packed_keys.const_data_ptr<float>() +
           (row.first_panel * kv_heads + kv_head * row.panels) * head_dim * kPanelKeys;
  }
  const float* Values(const Row& row, int64_t kv_head) const {
    return packed_values.const_data_ptr<float>() + (kv_head * tokens + row.begin) * width;
  }
};

void PackKeys(const at::Tensor& k, Call* call) {
  int64_t panels = 0;
  for (Row& row : call->rows) {
    row.first_panel = panels;
    row.panels = BlockCount(row.length, kPanelKeys);
    panels += row.panels;
  }
  const int64_t panel_floats = call->head_dim * kPanelKeys;
  call->packed_keys = at::empty({panels * call->kv_heads * panel_floats}, k.options());
  float* packed = call->packed_keys.mutable_data_ptr<float>();
  const float* keys = k.const_data_ptr<float>();
  for (const Row& row : call->rows) {
    at::parallel_for(0, row.panels * call->kv_heads, 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t kv_head = i / row.panels;
        const int64_t first = i % row.panels * kPanelKeys;
        const int64_t count = std::min(kPanelKeys, row.length - first);
        const float* source = keys + (row.begin + first) * k.stride(0) + kv_head * k.stride(1);
        float* panel = packed + (row.first_panel * call->kv_heads + i) * panel_floats;
        for (int64_t d = 0; d < call->head_dim; ++d) {
          for (int64_t key = 0; key < count; ++key) {
            panel[d * kPanelKeys + key] = source[key * k.stride(0) + d];
          }
          std::fill(panel + d * kPanelKeys + count, panel + (d + 1) * kPanelKeys, 0.0f);
        }
      }
    });
  }
}

void PackValues(const at::Tensor& v, Call* call) {
  const int64_t width = call->width;
  call->packed_values = at::empty({call->kv_heads * call->tokens * width}, v.options());
  float* packed = call->packed_values.mutable_data_ptr<float>();
  const float* values = v.const_data_ptr<float>();
  at::parallel_for(0, call->kv_heads * call->tokens, 256, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* source =
          values + i % call->tokens * v.stride(0) + i / call->tokens * v.stride(1);
      std::copy(source, source + call->head_dim, packed + i * width);
      std::fill(packed + i * width + call->head_dim, packed + (i + 1) * width, 0.0f);
    }
  });
}

// The key spans of a query tile in ascending order: whole tiles of a dense row, runs of adjacent
// kept blocks of a sparse one.
class SpanReader {
 public:
  SpanReader(const Row& row, const Call& call, const Task& task) : row_(row) {
    if (row.mask != nullptr) {
      const int64_t blocks = row.blocks();
      words_ =
          row.mask + (task.head * blocks + task.query / row.block_tokens) * MaskRowWords(blocks);
    }
    next_ = call.first_key;
  }

  bool Next(Span* span) {
    if (words_ == nullptr) {
      if (next_ >= row_.length) return false;
      *span = {next_, std::min(kTile, row_.length - next_)};
      next_ += kTile;
      return true;
    }
    const int64_t block = row_.block_tokens;
    int64_t j = next_ / block;
    while (j < row_.blocks() && !MaskBit(words_, j)) ++j;
    if (j == row_.blocks()) return false;
    const int64_t first = j;
    while (j < row_.blocks() && (j + 1 - first) * block <= kTile && MaskBit(words_, j)) ++j;
    *span = {first * block, std::min(j * block, row_.length) - first * block};
    next_ = j * block;
    return true;
  }

 private:
  const Row& row_;
  const int32_t* words_ = nullptr;
  int64_t next_ = 0;
};

// mass[query block, key block] += this tile's queries' shares, once all spans are known.
void AddMass(const Call& call, const Row& row, const Task& task, int64_t queries, int64_t spans,
             const Scratch& scratch) {
  const int64_t key_blocks = row.blocks() - call.first_key / row.block_tokens;
  const int64_t blocks_per_span = kTile / row.block_tokens;
  float* mass = row.mass + task.head * row.blocks() * key_blocks;
  for (int64_t r = 0; r < queries; ++r) {
    const int64_t query_block = (task.query + r) / row.block_tokens;
    const int64_t block_queries =
        std::min(row.block_tokens, row.length - query_block * row.block_tokens);
    const float share = 1.0f / (scratch.sum[r] * static_cast<float>(block_queries));
    float* cells = mass + query_block * key_blocks;
    for (int64_t s = 0; s < spans; ++s) {
      const float factor = std::exp2(scratch.span_max[r * spans + s] - scratch.max[r]) * share;
      const int64_t end = std::min((s + 1) * blocks_per_span, key_blocks);
      for (int64_t j = s * blocks_per_span; j < end; ++j) {
        cells[j] += scratch.block_sums[r * key_blocks + j] * factor;
      }
    }
  }
}

void StoreOutput(const Call& call, const Row& row, const Task& task, int64_t queries,
                 const Scratch& scratch) {
  for (int64_t r = 0; r < queries; ++r) {
    const int64_t token = row.begin + task.query + r;
    const float sum = scratch.sum[r];
    const bool empty = sum == 0.0f;  // no kept block
    call.lse[task.head * call.tokens + token] =
        empty ? -std::numeric_limits<float>::infinity() : (scratch.max[r] + std::log2(sum)) * kLn2;
    const float factor = empty ? 0.0f : 1.0f / sum;
    float* out = call.out + (token * call.heads + task.head) * call.head_dim;
    for (int64_t d = 0; d < call.head_dim; ++d) out[d] = scratch.out[r * call.width + d] * factor;
  }
}

// Keeps the span's maximum and its sums per key block for AddMass.
void RecordSpan(const Call& call, const Row& row, int64_t queries, const Span& span, int64_t spans,
                Scratch* scratch) {
  const int64_t key_blocks = row.blocks() - call.first_key / row.block_tokens;
  const int64_t index = (span.begin - call.first_key) / kTile;
  const int64_t groups = BlockCount(span.count, row.block_tokens);
  const int64_t first_block = (span.begin - call.first_key) / row.block_tokens;
  for (int64_t r = 0; r < queries; ++r) {
    scratch->span_max[r * spans + index] = scratch->max[r];
    for (int64_t g = 0; g < groups; ++g) {
      scratch->block_sums[r * key_blocks + first_block + g] = scratch->group_sums[r * groups + g];
    }
  }
}

void RunTask(const Call& call, const Task& task, Scratch* scratch) {
  const InnerLoops& loops = Loops();
  const Row& row = call.rows[static_cast<size_t>(task.row)];
  const int64_t queries = std::min(row.query_tile(), row.length - task.query);
  const int64_t kv_head = task.head * call.kv_heads / call.heads;
  const int64_t spans = BlockCount(row.length - call.first_key, kTile);
  scratch->Resize(call.width, row.blocks(), spans);
  std::fill_n(scratch->out.begin(), queries * call.width, 0.0f);
  std::fill_n(scratch->max.begin(), queries, -std::numeric_limits<float>::infinity());
  std::fill_n(scratch->sum.begin(), queries, 0.0f);

  const float* q =
      call.q + (row.begin + task.query) * call.q_token_stride + task.head * call.q_head_stride;
  const float* keys = call.Keys(row, kv_head);
  const int64_t group = row.mass != nullptr ? row.block_tokens : kTile;
  SpanReader reader(row, call, task);
  for (Span span; reader.Next(&span);) {
    // first_key and every block are whole panels, so a span starts at a panel.
    loops.query_key(q, call.q_token_stride, queries, call.head_dim,
                    keys + span.begin / kPanelKeys * call.head_dim * kPanelKeys,
                    BlockCount(span.count, kPanelKeys), call.scale, scratch->logits.data(), kTile);
    loops.softmax(scratch->logits.data(), kTile, queries, span.count, group,
                  {scratch->max.data(), scratch->sum.data()}, scratch->rescale.data(),
                  scratch->group_sums.data());
    if (call.out != nullptr) {
      loops.weight_value(scratch->logits.data(), kTile, queries, span.count,
                         call.Values(row, kv_head) + span.begin * call.width, call.width,
                         scratch->rescale.data(), scratch->out.data());
    }
    if (row.mass != nullptr) RecordSpan(call, row, queries, span, spans, scratch);
  }
  if (row.mass != nullptr) AddMass(call, row, task, queries, spans, *scratch);
  if (call.out != nullptr) StoreOutput(call, row, task, queries, *scratch);
}

void RunTasks(const Call& call) {
  std::vector<Task> tasks;
  for (size_t r = 0; r < call.rows.size(); ++r) {
    for (int32_t head = 0; head < call.heads; ++head) {
      for (int64_t query = 0; query < call.rows[r].length; query += call.rows[r].query_tile()) {
        tasks.push_back({static_cast<int32_t>(r), head, query});
      }
    }
  }
  std::atomic<size_t> next{0};
  at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t, int64_t) {
    Scratch scratch;
    for (size_t i = next.fetch_add(1); i < tasks.size(); i = next.fetch_add(1)) {
      RunTask(call, tasks[i], &scratch);
    }
  });
}

Call MakeCall(const Tensor& q, const Tensor& k, double scale) {
  Call call;
  call.q = q.const_data_ptr<float>();
  call.q_token_stride = q.stride(0);
  call.q_head_stride = q.stride(1);
  call.heads = q.size(1);
  call.kv_heads = k.size(1);
  call.head_dim = q.size(2);
  call.width = RoundUp(call.head_dim, kVectorFloats);
  call.tokens = q.size(0);
  call.scale = static_cast<float>(scale) * kLog2E;
  return call;
}

}  // namespace

AttentionMassResult AttentionWithMass(const Tensor& q, const Tensor& k, const Tensor& v,
                                      const PackedRows& rows, const Tensor& mass_offsets,
                                      int64_t mass_size) {
  Call call = MakeCall(q, k, 1.0 / std::sqrt(static_cast<double>(q.size(2))));
  Tensor out = at::empty(q.sizes(), q.options());
  Tensor lse = at::empty({call.heads, call.tokens}, q.options());
  Tensor mass = at::zeros({mass_size}, q.options());
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
  call.out = out.mutable_data_ptr<float>();
  call.lse = lse.mutable_data_ptr<float>();
  PackKeys(k, &call);
  PackValues(v, &call);
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
  Tensor mass = at::zeros({call.heads, row.blocks(), row.blocks() - first_key_block}, q.options());
  row.mass = mass.mutable_data_ptr<float>();
  call.rows.push_back(row);
  PackKeys(k, &call);
  RunTasks(call);
  return mass;
}

}  // namespace sparsed::kernels::cpu
