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
  (void)m;
}

}  // namespace sparsed::kernels
