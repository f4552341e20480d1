// SPDX-License-Identifier: Apache-2.0
#include "engine/attention/mask_arena.h"

#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/matchers.h"

namespace sparsed {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

TEST(MaskArenaTest, FreesWhenTheHandleGoes) {
  MaskArena arena(1024);
  {
    ASSERT_OK_AND_ASSIGN(const MaskHandle mask, arena.Reserve(100));
    EXPECT_EQ(mask.bytes(), 100);
    EXPECT_EQ(arena.used_bytes(), 128);  // whole cache lines
  }
  EXPECT_EQ(arena.used_bytes(), 0);
}

TEST(MaskArenaTest, MovedHandlesFreeOnce) {
  MaskArena arena(1024);
  ASSERT_OK_AND_ASSIGN(MaskHandle first, arena.Reserve(64));
  MaskHandle second(std::move(first));
  MaskHandle third;
  third = std::move(second);
  EXPECT_EQ(arena.used_bytes(), 64);
  third = MaskHandle();
  EXPECT_EQ(arena.used_bytes(), 0);
}

TEST(MaskArenaTest, ErrorsNameAskedFreeAndBudget) {
  MaskArena arena(256);
  EXPECT_THAT(arena.Reserve(257), StatusIs(absl::StatusCode::kResourceExhausted,
                                           HasSubstr("whole mask budget of 256")));
  EXPECT_THAT(arena.Reserve(0), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0 bytes")));
  ASSERT_OK_AND_ASSIGN(const MaskHandle mask, arena.Reserve(192));
  EXPECT_THAT(arena.Reserve(65), StatusIs(absl::StatusCode::kResourceExhausted,
                                          HasSubstr("65 bytes: 64 bytes are free")));
}

TEST(MaskArenaTest, NeighbouringFreeRangesJoin) {
  MaskArena arena(192);
  std::vector<MaskHandle> masks;
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK_AND_ASSIGN(MaskHandle mask, arena.Reserve(64));
    masks.push_back(std::move(mask));
  }
  for (const int order : {1, 0, 2}) masks[static_cast<size_t>(order)] = MaskHandle();
  EXPECT_THAT(arena.Reserve(192), IsOk());
}

TEST(MaskArenaTest, RangesNeverOverlap) {
  constexpr int64_t kBudget = 4096;
  MaskArena arena(kBudget);
  std::vector<int> owner(kBudget / 4, -1);
  std::vector<MaskHandle> masks(40);
  std::mt19937 random(1);
  for (int round = 0; round < 5000; ++round) {
    const auto i = static_cast<size_t>(random() % masks.size());
    const auto mark = [&](int value, int expected) {
      for (int64_t w = 0; w < masks[i].bytes() / 4; ++w) {
        int& cell = owner[static_cast<size_t>(masks[i].offset_words() + w)];
        ASSERT_EQ(cell, expected);
        cell = value;
      }
    };
    if (masks[i].bytes() > 0) {
      mark(-1, static_cast<int>(i));
      masks[i] = MaskHandle();
    } else if (auto mask = arena.Reserve(4 * (1 + static_cast<int64_t>(random() % 60)));
               mask.ok()) {
      masks[i] = *std::move(mask);
      mark(static_cast<int>(i), -1);
    }
  }
  masks.clear();
  EXPECT_EQ(arena.used_bytes(), 0);
  EXPECT_THAT(arena.Reserve(kBudget), IsOk());
}

TEST(MaskArenaTest, ManyThreadsLeaveNothingBehind) {
  MaskArena arena(1 << 16);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&arena, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      std::vector<MaskHandle> held(8);
      for (int round = 0; round < 2000; ++round) {
        auto mask = arena.Reserve(1 + static_cast<int64_t>(random() % 5000));
        if (mask.ok()) held[random() % held.size()] = *std::move(mask);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(arena.used_bytes(), 0);
}

}  // namespace
}  // namespace sparsed
