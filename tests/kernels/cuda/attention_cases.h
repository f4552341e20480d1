// SPDX-License-Identifier: Apache-2.0
// Inputs, masks and error bounds of the CUDA attention tests. The oracle is reference/ in fp64, on
// the GPU through ATen, on the very values that the kernel reads.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "kernels/attention.h"
#include "kernels/block_mask.h"
#include "kernels/reference/reference.h"
#include "tests/support/packed_rows.h"

namespace sparsed::testing {

struct Qkv {
  at::Tensor q, k, v;
};

// {heads, kv_heads}
using Heads = std::pair<int64_t, int64_t>;

inline at::TensorOptions OnGpu(at::ScalarType type) {
  return at::TensorOptions().device(at::kCUDA).dtype(type);
}

// Logits spread over about +-6, so that softmax is neither flat nor one-hot.
inline Qkv RandomQkv(int64_t tokens, Heads heads, int64_t head_dim, at::ScalarType type) {
  const auto random = [&](int64_t count, double size) {
    return (at::randn({tokens, count, head_dim}, OnGpu(at::kFloat)) * size).to(type);
  };
  return {random(heads.first, 1.5), random(heads.second, 1.5), random(heads.second, 1)};
}

// The tokens begin .. begin + length - 1, in memory of their own.
inline Qkv Part(const Qkv& x, int64_t begin, int64_t length) {
  const auto part = [&](const at::Tensor& t) { return t.narrow(0, begin, length).clone(); };
  return {part(x.q), part(x.k), part(x.v)};
}

// The mask arena is where the activations are, the lists stay on the CPU.
inline kernels::PackedRows ToGpu(kernels::PackedRows rows) {
  rows.mask_arena = rows.mask_arena.to(at::kCUDA);
  return rows;
}

// One row, with a mask [heads, query_blocks, key_blocks] if it is defined.
inline kernels::PackedRows OneRow(int64_t length, int64_t block, const at::Tensor& mask = {}) {
  kernels::PackedRows rows = DenseRows({length}, block);
  if (mask.defined()) SetMask(0, mask, block, &rows);
  return ToGpu(rows);
}

// The unit roundoff of a type: half of what its values near 1 are apart.
inline double Roundoff(at::ScalarType type) {
  if (type == at::kBFloat16) return std::ldexp(1.0, -8);
  if (type == at::kHalf) return std::ldexp(1.0, -11);
  return std::ldexp(1.0, -24);
}

// What a sum of `terms` fp32 numbers may be off, relative to the sum of their magnitudes: every step
// errs by at most 2^-24, independently, so four standard deviations of a random walk.
inline double SumError(int64_t terms) {
  return 4 * std::sqrt(static_cast<double>(terms)) * std::ldexp(1.0, -24);
}

// What a logit may be off, given sum |q_i k_i| * scale ("magnitude"): the products of bf16 and fp16
// are exact; tensor cores add 16 products a step and cut, not round, what is below the largest: two
// units of 2^-23 a step. fp32 is a random walk of fused multiply-adds. Then some eight roundings:
// scale, its constants, the maximum's subtraction, back to natural logs.
inline double LogitError(at::ScalarType type, int64_t head_dim) {
  const double steps = static_cast<double>(head_dim);
  const double sum =
      type == at::kFloat ? SumError(head_dim) : (std::ceil(steps / 16) * 2) * std::ldexp(1.0, -23);
  return sum + 8 * std::ldexp(1.0, -24);
}

// The largest sum |q_i k_i| * scale of every query and head over its row's keys, [heads, tokens].
inline at::Tensor LogitMagnitudes(const at::Tensor& q, const at::Tensor& k,
                                  const at::Tensor& row_offsets, double scale) {
  const int64_t heads = q.size(1);
  at::Tensor result = at::empty({heads, q.size(0)}, OnGpu(at::kDouble));
  for (int64_t row = 0; row + 1 < row_offsets.size(0); ++row) {
    const int64_t begin = row_offsets[row].item<int64_t>();
    const int64_t length = row_offsets[row + 1].item<int64_t>() - begin;
    for (int64_t head = 0; head < heads; ++head) {
      const auto tokens_of = [&](const at::Tensor& x, int64_t h) {
        return x.narrow(0, begin, length).select(1, h).to(at::kDouble).abs();
      };
      const at::Tensor products =
          at::matmul(tokens_of(q, head), tokens_of(k, head * k.size(1) / heads).t());
      result.narrow(1, begin, length).select(0, head).copy_(products.amax(-1) * scale);
    }
  }
  return result;
}

// fp64 results and how far from them a kernel may be, elementwise.
struct Expected {
  at::Tensor out, out_bound;  // [tokens, heads, head_dim]
  at::Tensor lse, lse_bound;  // [heads, tokens]
};

// A weight is off by its logit's error, exp2's two units, the sums' error; before it meets v it is
// rounded to v's type (once more if the kernel sums rounded weights). All relative, so the output is
// off by that share of sum_j p_j |v_j|, and by its own rounding. fp16 has no more than 2^-25 below
// 6e-5: weights and outputs are off by that, too (weights are at most 1 and sum to 1 at least).
inline Expected Expect(const Qkv& x, const kernels::PackedRows& rows) {
  const at::ScalarType type = x.q.scalar_type();
  const Qkv wide{x.q.to(at::kDouble), x.k.to(at::kDouble), x.v.to(at::kDouble)};
  const kernels::AttentionResult exact =
      kernels::reference::Attention(wide.q, wide.k, wide.v, rows);
  const at::Tensor size =
      kernels::reference::Attention(wide.q, wide.k, wide.v.abs(), rows).out;  // sum_j p_j |v_j|
  const double scale = 1 / std::sqrt(static_cast<double>(x.q.size(2)));
  const at::Tensor logit_error =
      LogitMagnitudes(x.q, x.k, rows.row_offsets, scale) * LogitError(type, x.q.size(2));
  const double sums = SumError(x.q.size(0)) + std::ldexp(1.0, -22);
  const at::Tensor weight_error =
      (at::expm1(logit_error * 2) + sums).t().unsqueeze(-1);  // [tokens, heads, 1]
  const double rounded = type == at::kFloat ? 0 : 2 * Roundoff(type);
  at::Tensor out_bound = size * (weight_error + rounded);
  if (type == at::kHalf) {
    const double tiny = std::ldexp(1.0, -25);
    out_bound += tiny * (1 + wide.v.abs().sum(0).amax());
  }
  out_bound += Roundoff(type) * (exact.out.abs() + out_bound);
  return {exact.out, out_bound, exact.lse, logit_error + sums};
}

// Every element within its bound. Infinities must be equal, NaN is never within.
inline void ExpectWithin(const at::Tensor& got, const at::Tensor& want, const at::Tensor& bound,
                         const char* what) {
  ASSERT_EQ(got.sizes(), want.sizes()) << what;
  const at::Tensor wide = got.to(at::kDouble);
  const at::Tensor error = (wide - want).abs();
  const at::Tensor good = error.le(bound).logical_or(want.isinf().logical_and(wide.eq(want)));
  if (good.all().item<bool>()) return;
  const at::Tensor bad = good.logical_not();
  const at::Tensor ratio = at::where(bad, error / bound, at::zeros_like(error)).flatten();
  const int64_t worst = at::nan_to_num(ratio, INFINITY).argmax().item<int64_t>();
  ADD_FAILURE() << what << ": " << bad.sum().item<int64_t>() << " of " << bad.numel()
                << " elements beyond their bound; worst at " << worst << " of " << got.sizes()
                << ": got " << wide.flatten()[worst].item<double>() << ", want "
                << want.flatten()[worst].item<double>() << " +- "
                << bound.expand_as(want).flatten()[worst].item<double>();
}

inline void ExpectAttention(const kernels::AttentionResult& got, const Expected& want) {
  ExpectWithin(got.out, want.out, want.out_bound, "out");
  ExpectWithin(got.lse, want.lse, want.lse_bound, "lse");
}

// The operator's results against the oracle's; returns them.
inline kernels::AttentionResult CheckAttention(const Qkv& x, const kernels::PackedRows& rows) {
  const kernels::AttentionResult got = kernels::Attention(x.q, x.k, x.v, rows);
  EXPECT_EQ(got.out.scalar_type(), x.q.scalar_type());
  EXPECT_EQ(got.lse.scalar_type(), at::kFloat);
  EXPECT_TRUE(got.out.is_contiguous());
  ExpectAttention(got, Expect(x, rows));
  return got;
}

// Pooled mass of one row. A cell is a mean of sums of weights exp(logit - lse), so it is off by a
// share of itself: the worst of its queries' logit and lse errors, and the sum over a block pair.
inline void CheckMass(const at::Tensor& mass, const at::Tensor& q, const at::Tensor& k,
                      int64_t block, double scale, int64_t first_block) {
  ASSERT_EQ(mass.scalar_type(), at::kFloat);
  const at::Tensor want = kernels::reference::PooledMass(q.to(at::kDouble), k.to(at::kDouble),
                                                         block, scale, first_block);
  const at::Tensor logit_error =
      LogitMagnitudes(q, k, Longs({0, q.size(0)}), std::abs(scale)).max() *
      LogitError(q.scalar_type(), q.size(2));
  const double sums = SumError(q.size(0)) + SumError(block * block) + std::ldexp(1.0, -21);
  const at::Tensor bound = want * (at::expm1(logit_error * 2) + sums) + 1e-30;
  ExpectWithin(mass, want, bound, "mass");
}

}  // namespace sparsed::testing
