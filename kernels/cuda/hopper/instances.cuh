// SPDX-License-Identifier: Apache-2.0
// SPARSED_HOPPER_INSTANCES(name, Element, head_dim) compiles the kernel for all classes of rows.
// One file an element and head size, because that is what compiles in parallel.
#pragma once

#include "kernels/cuda/hopper/instances.h"
#include "kernels/cuda/hopper/kernel.cuh"

namespace sparsed::kernels::cuda::hopper {

template <class Element, int head_dim>
LaunchFunction InstanceFor(RowClass row_class) {
  switch (row_class) {
    case RowClass::kShared:
      return LaunchInstance<Traits<Element, head_dim, Lists::kShared, 0>>;
    case RowClass::kOwn:
      return LaunchInstance<Traits<Element, head_dim, Lists::kOwn, 0>>;
    case RowClass::kMass128:
      return LaunchInstance<Traits<Element, head_dim, Lists::kShared, 128>>;
    case RowClass::kMass64:
      return LaunchInstance<Traits<Element, head_dim, Lists::kShared, 64>>;
  }
  return nullptr;
}

}  // namespace sparsed::kernels::cuda::hopper
