// SPDX-License-Identifier: Apache-2.0
#include "server/request_state.h"

#include <set>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/matchers.h"

namespace sparsed {
namespace {

using ::sparsed::testing::IsOk;
using ::sparsed::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(RequestStateTest, OnlyTheListedMovesAreLegal) {
  using S = RequestState;
  const std::set<std::pair<S, S>> legal = {
      {S::kQueued, S::kRunning},   {S::kQueued, S::kCancelled}, {S::kQueued, S::kExpired},
      {S::kRunning, S::kFinished}, {S::kRunning, S::kFailed},   {S::kRunning, S::kCancelled},
      {S::kRunning, S::kExpired},
  };
  for (S from : kRequestStates) {
    for (S to : kRequestStates) {
      if (legal.count({from, to}) > 0) {
        EXPECT_THAT(CheckMove(from, to), IsOk());
      } else {
        EXPECT_THAT(CheckMove(from, to),
                    StatusIs(absl::StatusCode::kInternal, AllOf(HasSubstr(RequestStateName(from)),
                                                                HasSubstr(RequestStateName(to)))));
      }
    }
  }
}

TEST(RequestStateTest, EveryStateHasItsOwnName) {
  std::set<std::string> names;
  for (RequestState state : kRequestStates) names.insert(RequestStateName(state));
  EXPECT_EQ(names.size(), kRequestStates.size());
  EXPECT_EQ(names.count("unknown"), 0u);
}

}  // namespace
}  // namespace sparsed
