// SPDX-License-Identifier: Apache-2.0
// Which function serves which operator on CUDA; what is not named here runs the reference.
#include <torch/library.h>

#include "kernels/cuda/cuda.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/fused.h"
#include "kernels/ops/reorder.h"
#include "kernels/ops/score.h"
#include "kernels/ops/select.h"

namespace sparsed::kernels {

TORCH_LIBRARY_IMPL(sparsed, CUDA, m) {
  m.impl("attention", ops::AttentionOp<cuda::Attention>);
  m.impl("attention_with_mass", ops::AttentionWithMassOp<cuda::AttentionWithMass>);
  m.impl("pooled_mass", ops::PooledMassOp<cuda::PooledMass>);

  m.impl("sample_retained_mass", ops::SampleRetainedMassOp<cuda::SampleRetainedMass>);
}

}  // namespace sparsed::kernels
