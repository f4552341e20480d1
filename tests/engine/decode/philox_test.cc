// SPDX-License-Identifier: Apache-2.0
#include "engine/decode/philox.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

namespace sparsed {
namespace {

// Known answers of the Random123 distribution (kat_vectors, philox4x32 10 rounds).
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, UniformsDependOnEveryInput) {
  const std::set<double> values = {
      UniformAt(1, 2, 3, RandomUse::kToken), UniformAt(2, 2, 3, RandomUse::kToken),
      UniformAt(1, 3, 3, RandomUse::kToken), UniformAt(1, 2, 4, RandomUse::kToken),
      UniformAt(1, 2, 3, RandomUse::kOrder), UniformAt(uint64_t{1} << 40, 2, 3, RandomUse::kToken)};
  EXPECT_EQ(values.size(), 6u);
}

TEST(PhiloxTest, UniformsAreUniform) {
  double sum = 0;
  double squares = 0;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    const double u = UniformAt(7, i / 100, i % 100, RandomUse::kToken);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
    squares += u * u;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.01);
  EXPECT_NEAR(squares / kDraws, 1.0 / 3, 0.01);
}

}  // namespace
}  // namespace sparsed
