// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/isa.h"

#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <c10/util/Exception.h>

namespace sparsed::kernels::cpu {
namespace {

TEST(InstructionSetTest, OperatorsUseTheOneAskedFor) {
  const char* asked = std::getenv("SPARSED_CPU_ISA");
  const bool any = asked == nullptr || *asked == '\0';
  EXPECT_STREQ(Loops().name, any ? FindLoops("").name : asked);
}

TEST(InstructionSetTest, EveryProcessorHasPortableLoops) {
  EXPECT_STREQ(FindLoops("portable").name, "portable");
}

TEST(InstructionSetTest, WithoutANameItIsTheBest) {
  const std::string best = __builtin_cpu_supports("avx512bw") ? "avx512"
                           : __builtin_cpu_supports("avx2")   ? "avx2"
                                                              : "portable";
  EXPECT_EQ(FindLoops("").name, best);
}

TEST(InstructionSetTest, UnknownNameIsRefusedWithTheAcceptedOnes) {
  try {
    FindLoops("sse9");
    FAIL() << "accepted";
  } catch (const c10::ValueError& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                ::testing::HasSubstr(
                    "SPARSED_CPU_ISA is sse9, must be avx512, avx2 or portable; this processor "
                    "has "));
  }
}

}  // namespace
}  // namespace sparsed::kernels::cpu
