// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/float_rows.h"

#include <cstring>

namespace sparsed::kernels::cpu {
namespace {

using Quad = float __attribute__((vector_size(16)));

Quad Load(const float* p) {
  Quad x;
  std::memcpy(&x, p, sizeof(x));
  return x;
}

// Four by four.
void TransposeQuads(const float* source, int64_t source_stride, float* target,
                    int64_t target_stride) {
  const Quad a = Load(source), b = Load(source + source_stride);
  const Quad c = Load(source + 2 * source_stride), d = Load(source + 3 * source_stride);
  const Quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Quad ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Quad cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Quad cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const Quad turned[4] = {__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5),
                          __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
                          __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
                          __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
  for (int64_t i = 0; i < 4; ++i) std::memcpy(target + i * target_stride, &turned[i], sizeof(Quad));
}

}  // namespace

void Transpose(const float* source, int64_t source_stride, int64_t rows, int64_t columns,
               float* target, int64_t target_stride) {
  const int64_t quad_rows = rows / 4 * 4;
  const int64_t quad_columns = columns / 4 * 4;
  for (int64_t row = 0; row < quad_rows; row += 4) {
    for (int64_t column = 0; column < quad_columns; column += 4) {
      TransposeQuads(source + row * source_stride + column, source_stride,
                     target + column * target_stride + row, target_stride);
    }
  }
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = row < quad_rows ? quad_columns : 0; column < columns; ++column) {
      target[column * target_stride + row] = source[row * source_stride + column];
    }
  }
}

}  // namespace sparsed::kernels::cpu
