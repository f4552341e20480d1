// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"

namespace sparsed::kernels::cpu {
namespace {

constexpr int64_t kTokensPerTask = 32;

// Draws from softmax(logits / temperature): the first token whose cumulative weight passes
// `uniform`.
int64_t SampleToken(const float* logits, int64_t vocabulary, float max, double temperature,
                    double uniform) {
  const auto weight = [&](int64_t i) {
    return std::exp((static_cast<double>(logits[i]) - max) / temperature);
  };
  double total = 0;
  for (int64_t i = 0; i < vocabulary; ++i) total += weight(i);
  const double target = uniform * total;
  double cumulative = 0;
  for (int64_t i = 0; i < vocabulary; ++i) {
    cumulative += weight(i);
    if (cumulative > target) return i;
  }
  return vocabulary - 1;
}

}  // namespace

Tensor RmsNorm(const Tensor& x, const Tensor& weight, double eps) {
  const int64_t width = x.size(1);
  Tensor out = at::empty(x.sizes(), x.options());
  const float* source = x.const_data_ptr<float>();
  const float* gain = weight.const_data_ptr<float>();
  float* target = out.mutable_data_ptr<float>();
  at::parallel_for(0, x.size(0), kTokensPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      Loops().rms_norm(source + t * x.stride(0), gain, width, static_cast<float>(eps),
                       target + t * width);
    }
  });
  return out;
}

void Rope(const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& row_offsets) {
  const int64_t half = x.size(2) / 2;
  const auto offsets = row_offsets.accessor<int64_t, 1>();
  float* data = x.mutable_data_ptr<float>();
  const float* cosines = cos.const_data_ptr<float>();
  const float* sines = sin.const_data_ptr<float>();
  for (int64_t row = 0; row + 1 < offsets.size(0); ++row) {
    at::parallel_for(offsets[row], offsets[row + 1], kTokensPerTask,
                     [&](int64_t begin, int64_t end) {
                       for (int64_t t = begin; t < end; ++t) {
                         const int64_t position = t - offsets[row];
                         for (int64_t head = 0; head < x.size(1); ++head) {
                           float* low = data + t * x.stride(0) + head * x.stride(1);
                           Loops().rotate(low, low + half, cosines + position * half,
                                          sines + position * half, half);
                         }
                       }
                     });
  }
}

Tensor SiluMul(const Tensor& gate_up) {
  const int64_t width = gate_up.size(1) / 2;
  Tensor out = at::empty({gate_up.size(0), width}, gate_up.options());
  const float* source = gate_up.const_data_ptr<float>();
  float* target = out.mutable_data_ptr<float>();
  at::parallel_for(0, gate_up.size(0), kTokensPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float* gate = source + t * gate_up.stride(0);
      Loops().silu_mul(gate, gate + width, width, target + t * width);
    }
  });
  return out;
}

CandidateStatistics ComputeCandidateStatistics(const Tensor& logits, const Tensor& uniforms,
                                               double temperature) {
  const int64_t positions = logits.size(0);
  const int64_t vocabulary = logits.size(1);
  Tensor token = at::empty({positions}, at::kInt);
  Tensor probability = at::empty({positions}, at::kFloat);
  Tensor finite = at::empty({positions}, at::kBool);
  const float* data = logits.const_data_ptr<float>();
  const double* uniform = uniforms.const_data_ptr<double>();
  int32_t* tokens = token.mutable_data_ptr<int32_t>();
  float* probabilities = probability.mutable_data_ptr<float>();
  bool* finites = finite.mutable_data_ptr<bool>();
  at::parallel_for(0, positions, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const float* row = data + p * vocabulary;
      finites[p] = std::all_of(row, row + vocabulary, [](float x) { return std::isfinite(x); });
      const int64_t best = std::max_element(row, row + vocabulary) - row;  // first of equals
      const float max = row[best];
      const int64_t chosen = temperature > 0 && finites[p]
                                 ? SampleToken(row, vocabulary, max, temperature, uniform[p])
                                 : best;
      tokens[p] = static_cast<int32_t>(chosen);
      probabilities[p] = static_cast<float>(std::exp(static_cast<double>(row[chosen]) - max) /
                                            Loops().exp_sum(row, vocabulary, max, 1.0f));
    }
  });
  return {token, probability, finite};
}

}  // namespace sparsed::kernels::cpu
