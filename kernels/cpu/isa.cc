// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/isa.h"

namespace sparsed::kernels::cpu {

namespace avx512 {
extern const InnerLoops kLoops;
}
namespace avx2 {
extern const InnerLoops kLoops;
}
namespace portable {
extern const InnerLoops kLoops;
}

namespace {

const InnerLoops& BestLoops() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return avx512::kLoops;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2::kLoops;
  return portable::kLoops;
}

}  // namespace

const InnerLoops& Loops() {
  static const InnerLoops& best = BestLoops();
  return best;
}

}  // namespace sparsed::kernels::cpu
