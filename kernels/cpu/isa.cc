// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/isa.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include <c10/util/Exception.h>

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

// Best first.
const InnerLoops* const kSets[] = {&avx512::kLoops, &avx2::kLoops, &portable::kLoops};

bool IsSupported(const InnerLoops& loops) {
  if (&loops == &avx512::kLoops) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
  if (&loops == &avx2::kLoops) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  }
  return true;
}

const InnerLoops& ChooseLoops() {
  const char* variable = std::getenv("SPARSED_CPU_ISA");
  return FindLoops(variable != nullptr ? variable : "");
}

}  // namespace

const InnerLoops& FindLoops(const char* name) {
  const std::string_view wanted = name;
  std::string supported;
  for (const InnerLoops* loops : kSets) {
    if (!IsSupported(*loops)) continue;
    if (wanted.empty() || wanted == loops->name) return *loops;
    supported.append(supported.empty() ? "" : ", ").append(loops->name);
  }
  TORCH_CHECK_VALUE(false, "sparsed: SPARSED_CPU_ISA is ", wanted,
                    ", must be avx512, avx2 or portable; this processor has ", supported);
}

const InnerLoops& Loops() {
  static const InnerLoops& chosen = ChooseLoops();
  return chosen;
}

}  // namespace sparsed::kernels::cpu
