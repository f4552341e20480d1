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
enum class Isa { kPortable, kAvx2, kAvx512 };

Isa Detect() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return Isa::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::kAvx2;
  return Isa::kPortable;
}

const Isa kIsa = Detect();
}  // namespace

const InnerLoops& Loops() {
  switch (kIsa) {
    case Isa::kAvx512:
      return avx512::kLoops;
    case Isa::kAvx2:
      return avx2::kLoops;
    case Isa::kPortable:
      break;
  }
  return portable::kLoops;
}

const char* LoopsName() {
  switch (kIsa) {
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kPortable:
      break;
  }
  return "portable";
}

}  // namespace sparsed::kernels::cpu
