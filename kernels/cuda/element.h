// SPDX-License-Identifier: Apache-2.0
// Dtypes of activations, for the launch functions: those have no Torch headers.
#pragma once

namespace sparsed::kernels::cuda {

enum class Element { kFloat, kBFloat16, kHalf };

}  // namespace sparsed::kernels::cuda
