// SPDX-License-Identifier: Apache-2.0
// What a round does, driven round by round on the test's thread.
#include "server/step_loop.h"

#include <algorithm>

#include "tests/server/step_loop_fixture.h"

namespace sparsed {
namespace {

using ::sparsed::testing::FakeEngine;
using ::sparsed::testing::IsOk;
using ::sparsed::testing::JobShape;
using ::sparsed::testing::StatusIs;
using ::sparsed::testing::StepLoopTest;
using ::sparsed::testing::TakeAll;
using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Duration kSecond = std::chrono::seconds(1);

TEST_F(StepLoopTest, RequestRunsToItsEnd) {
  engine_.on_step = [&](absl::Span<const RequestId>) { clock_.Advance(kSecond); };
  engine_.silent_steps = 1;
  Submit("a", {.prompt_tokens = 3, .generation_tokens = 8, .steps = 4, .sparse = true});
  clock_.Advance(2 * kSecond);
  RunUntilIdle();

  const FinishedEvent finished = Finished("a");
  EXPECT_THAT(finished.status, IsOk());
  EXPECT_EQ(finished.finish_reason, FinishReason::kLength);
  ASSERT_EQ(finished.canvas.length(), 11);
  for (int32_t i = 3; i < 11; ++i) {
    EXPECT_EQ(finished.canvas.tokens[static_cast<size_t>(i)], FakeEngine::TokenAt(i));
    EXPECT_EQ(finished.canvas.open[static_cast<size_t>(i)], 0);
  }
  EXPECT_EQ(finished.usage.prompt_tokens, 3);
  EXPECT_EQ(finished.usage.committed_tokens, 8);
  EXPECT_EQ(finished.usage.steps, 4);
  EXPECT_EQ(finished.usage.forward_passes, 4);
  EXPECT_EQ(finished.timings.queue_seconds, 2);
  EXPECT_EQ(finished.timings.first_commit_seconds, 4);  // the second step commits first
  EXPECT_EQ(finished.timings.total_seconds, 6);
  EXPECT_EQ(finished.timings.phase(StepPhase::kDense).steps, 1);
  EXPECT_EQ(finished.timings.phase(StepPhase::kDenseAndBuild).steps, 1);
  EXPECT_EQ(finished.timings.phase(StepPhase::kSparse).steps, 2);
  EXPECT_DOUBLE_EQ(finished.timings.phase(StepPhase::kSparse).seconds, 0.04);
  EXPECT_DOUBLE_EQ(finished.timings.mask_build_seconds, FakeEngine::kBuildSeconds);
  EXPECT_EQ(finished.sparsity.mask_density, FakeEngine::kSparseDensity);
  EXPECT_EQ(finished.sparsity.retained_mass, FakeEngine::kRetainedMass);
  EXPECT_DOUBLE_EQ(finished.sparsity.mean_density, (1 + 1 + 2 * 0.25) / 4);
  EXPECT_EQ(finished.sparsity.mask_bytes, 1000);
  EXPECT_EQ(finished.sparsity.heads.size(), 4u);  // 2 layers of 2 heads
  EXPECT_EQ(finished.sparsity.guard, GuardReason::kNone);
  ExpectNothingHeld();
}

TEST_F(StepLoopTest, DenseRequestHasNoMaskFacts) {
  Submit("a");
  RunUntilIdle();
  const FinishedEvent finished = Finished("a");
  EXPECT_EQ(finished.sparsity.mask_density, std::nullopt);
  EXPECT_EQ(finished.sparsity.retained_mass, std::nullopt);
  EXPECT_TRUE(finished.sparsity.heads.empty());
  EXPECT_EQ(finished.sparsity.mean_density, 1);
  EXPECT_EQ(finished.sparsity.mask_bytes, 0);
}

TEST_F(StepLoopTest, MaskThatNoStepUsedIsStillDescribed) {
  Submit("a", {.steps = 2, .sparse = true});  // dense, build
  RunUntilIdle();
  const FinishedEvent finished = Finished("a");
  EXPECT_EQ(finished.sparsity.mask_density, FakeEngine::kSparseDensity);  // the heads' mean
  EXPECT_EQ(finished.sparsity.mean_density, 1);
}

TEST_F(StepLoopTest, RebuiltMaskTakesThePlaceOfTheOneBefore) {
  Submit("a", {.steps = 8, .sparse = true, .refresh_every = 2});
  const std::vector<std::pair<double, double>> builds_and_frees = {{0, 0}, {0, 0}, {1, 0}, {1, 0},
                                                                   {2, 1}, {2, 1}, {3, 2}, {3, 3}};
  for (const auto& [builds, frees] : builds_and_frees) {
    loop_.RunRound();
    const auto metrics = Scrape();
    EXPECT_EQ(metrics.Value("sparsed_mask_builds_total"), builds);
    EXPECT_EQ(metrics.Value("sparsed_mask_frees_total"), frees);
    EXPECT_EQ(metrics.Count("sparsed_mask_build_seconds"), builds);
    EXPECT_EQ(metrics.Count("sparsed_attention_retained_mass", "preset", "sparsed"), builds);
  }
  const FinishedEvent finished = Finished("a");
  EXPECT_EQ(finished.timings.phase(StepPhase::kDense).steps, 2);
  EXPECT_EQ(finished.timings.phase(StepPhase::kRebuild).steps, 3);
  EXPECT_EQ(finished.timings.phase(StepPhase::kSparse).steps, 3);
  EXPECT_DOUBLE_EQ(finished.timings.mask_build_seconds, 3 * FakeEngine::kBuildSeconds);
  EXPECT_EQ(finished.sparsity.mask_density, FakeEngine::kSparseDensity);
  EXPECT_DOUBLE_EQ(finished.sparsity.mean_density, (2 + 6 * FakeEngine::kSparseDensity) / 8);
  EXPECT_EQ(Scrape().Value("sparsed_denoising_steps_total", "phase", "rebuild"), 3);
  EXPECT_EQ(Scrape().Count("sparsed_step_seconds", "phase", "rebuild"), 3);
  ExpectNothingHeld();
}

TEST_F(StepLoopTest, ShortCanvasIsGuardedOnceAndHoldsNoMask) {
  engine_.guard = GuardReason::kShortCanvas;
  Submit("a", {.steps = 4, .sparse = true});
  loop_.RunRound();
  EXPECT_EQ(engine_.load().mask_bytes_used, 0);
  RunUntilIdle();
  const FinishedEvent finished = Finished("a");
  EXPECT_EQ(finished.sparsity.guard, GuardReason::kShortCanvas);
  EXPECT_EQ(finished.sparsity.mask_density, std::nullopt);
  EXPECT_EQ(finished.sparsity.mean_density, 1);
  EXPECT_EQ(Scrape().Value("sparsed_attention_guard_total", "reason", "short_canvas"), 1);
  EXPECT_EQ(Scrape().Value("sparsed_attention_guard_total", "reason", "high_density"), 0);
  EXPECT_EQ(Scrape().Value("sparsed_mask_builds_total"), 0);
  ExpectNothingHeld();
}

TEST_F(StepLoopTest, GuardLetsGoOfADenseMaskOnce) {
  engine_.guard = GuardReason::kHighDensity;
  Submit("a", {.steps = 4, .sparse = true});  // dense, build, then dense by the guard
  loop_.RunRound();
  EXPECT_EQ(Scrape().Value("sparsed_attention_guard_total", "reason", "high_density"), 0);
  loop_.RunRound();
  EXPECT_EQ(Scrape().Value("sparsed_attention_guard_total", "reason", "high_density"), 1);
  EXPECT_EQ(Scrape().Value("sparsed_mask_builds_total"), 1);
  EXPECT_EQ(Scrape().Value("sparsed_mask_frees_total"), 1);
  RunUntilIdle();
  const FinishedEvent finished = Finished("a");
  EXPECT_EQ(finished.sparsity.guard, GuardReason::kHighDensity);
  EXPECT_EQ(finished.sparsity.mask_density, FakeEngine::kSparseDensity);  // what was refused
  EXPECT_EQ(finished.timings.phase(StepPhase::kDense).steps, 3);
  EXPECT_EQ(Scrape().Value("sparsed_attention_guard_total", "reason", "high_density"), 1);
  ExpectNothingHeld();
}

TEST_F(StepLoopTest, GuidanceCountsTwoForwardsPerStep) {
  Submit("a", {.steps = 4, .cfg_scale = 1.5});
  RunUntilIdle();
  EXPECT_EQ(Finished("a").usage.forward_passes, 8);
}

TEST_F(StepLoopTest, EventsReplayToTheFinalCanvas) {
  Submit("a", {.generation_tokens = 13, .steps = 5, .provisional = true});
  std::vector<Event> events;
  while (loop_.RunRound()) {
    for (Event& event : TakeAll(mailboxes_["a"].get())) events.push_back(std::move(event));
  }
  ASSERT_EQ(events.size(), 7u);
  const auto& started = std::get<StartedEvent>(events.front());
  EXPECT_EQ(started.prompt_tokens, 3);
  EXPECT_EQ(started.total_steps, 5);
  std::vector<int32_t> tokens(16, 1);
  for (size_t i = 1; i <= 5; ++i) {
    const auto& progress = std::get<ProgressEvent>(events[i]);
    EXPECT_EQ(progress.step, static_cast<int32_t>(i));
    EXPECT_EQ(progress.total_steps, 5);
    for (const TokenEdit& edit : progress.provisional) {
      tokens[static_cast<size_t>(edit.position)] = edit.token;
    }
    for (const TokenEdit& edit : progress.committed) {
      tokens[static_cast<size_t>(edit.position)] = edit.token;
    }
  }
  EXPECT_EQ(std::get<FinishedEvent>(events.back()).canvas.tokens, tokens);
}

TEST_F(StepLoopTest, RowLeavesWhenItFinishesAndTheNextTakesItsPlace) {
  Submit("short", {.steps = 1});
  for (int i = 0; i < 3; ++i) Submit("long" + std::to_string(i), {.steps = 8});
  Submit("next", {.steps = 1});
  loop_.RunRound();
  EXPECT_THAT(Finished("short").status, IsOk());
  EXPECT_EQ(engine_.load().rows, 3);
  loop_.RunRound();
  EXPECT_THAT(Finished("next").status, IsOk());
}

TEST_F(StepLoopTest, CancelFreesRowAndMaskWithinOneRoundInEveryPhase) {
  for (int steps_before = 1; steps_before < 4; ++steps_before) {
    SCOPED_TRACE(steps_before);
    Submit("a", {.steps = 5, .sparse = true});
    for (int i = 0; i < steps_before; ++i) loop_.RunRound();
    EXPECT_EQ(engine_.load().mask_bytes_used, 1000);
    EXPECT_TRUE(admission_.Cancel("a"));
    loop_.RunRound();
    const FinishedEvent finished = Finished("a");
    EXPECT_THAT(finished.status, StatusIs(absl::StatusCode::kCancelled, _));
    EXPECT_EQ(finished.usage.steps, steps_before);
    EXPECT_FALSE(admission_.Cancel("a"));
    ExpectNothingHeld();
  }
  EXPECT_EQ(Scrape().Value("sparsed_cancelled_total", "phase", "running"), 3);
}

TEST_F(StepLoopTest, CancelledInTheQueueNeverRuns) {
  Submit("a");
  EXPECT_TRUE(admission_.Cancel("a"));
  EXPECT_FALSE(loop_.RunRound());
  const FinishedEvent finished = Finished("a");
  EXPECT_THAT(finished.status, StatusIs(absl::StatusCode::kCancelled, _));
  EXPECT_EQ(finished.usage.steps, 0);
  EXPECT_EQ(finished.canvas.length(), 11);
  EXPECT_EQ(Scrape().Value("sparsed_cancelled_total", "phase", "queued"), 1);
  ExpectNothingHeld();
}

TEST_F(StepLoopTest, CancelDuringTheLastStepIsHonoured) {
  engine_.on_step = [&](absl::Span<const RequestId>) { EXPECT_TRUE(admission_.Cancel("a")); };
  Submit("a", {.steps = 1});
  RunUntilIdle();
  EXPECT_THAT(Finished("a").status, StatusIs(absl::StatusCode::kCancelled, _));
  ExpectNothingHeld();
}

TEST_F(StepLoopTest, DeadlineEndsQueuedAndRunningRequests) {
  engine_.on_step = [&](absl::Span<const RequestId>) { clock_.Advance(kSecond); };
  for (int i = 0; i < 4; ++i) Submit("row" + std::to_string(i), {.steps = 9}, 3 * kSecond);
  Submit("queued", {}, 2 * kSecond);
  RunUntilIdle();
  for (int i = 0; i < 4; ++i) {
    const FinishedEvent finished = Finished("row" + std::to_string(i));
    EXPECT_THAT(finished.status,
                StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("3 of 9")));
    EXPECT_EQ(finished.usage.steps, 3);
  }
  EXPECT_THAT(Finished("queued").status, StatusIs(absl::StatusCode::kDeadlineExceeded, _));
  EXPECT_EQ(Scrape().Value("sparsed_deadline_miss_total", "phase", "running"), 4);
  EXPECT_EQ(Scrape().Value("sparsed_deadline_miss_total", "phase", "queued"), 1);
  ExpectNothingHeld();
}

TEST_F(StepLoopTest, HeadOfTheLineKeepsItsTurn) {
  // Masks of 1000 bytes fill the budget of 4000 although a row is free.
  for (int i = 0; i < 3; ++i) Submit("sparse" + std::to_string(i), {.steps = 6, .sparse = true});
  loop_.RunRound();
  engine_.admit_status = [](const Request& request) {
    return request.attention.score == ScoreRule::kNone ? absl::OkStatus()
                                                       : absl::ResourceExhaustedError("fragmented");
  };
  Submit("head", {.steps = 2, .sparse = true});
  Submit("behind", {.steps = 2});
  loop_.RunRound();
  EXPECT_EQ(engine_.load().rows, 3) << "nobody may pass the head";
  engine_.admit_status = nullptr;
  loop_.RunRound();
  EXPECT_EQ(engine_.load().rows, 4);
  RunUntilIdle();
  EXPECT_THAT(Finished("head").status, IsOk());
  EXPECT_THAT(Finished("behind").status, IsOk());
}

TEST_F(StepLoopTest, RefusalByAnEmptyEngineIsFinal) {
  engine_.admit_status = [](const Request&) {
    return absl::ResourceExhaustedError("larger than the whole budget");
  };
  Submit("a");
  EXPECT_FALSE(loop_.RunRound());
  EXPECT_THAT(Finished("a").status, StatusIs(absl::StatusCode::kResourceExhausted, _));
  ExpectNothingHeld();
}

TEST_F(StepLoopTest, RequestTheEngineRefusesEndsAloneAndTheLineMovesOn) {
  engine_.admit_status = [](const Request& request) {
    return request.policy.cfg_scale > 5 ? absl::InvalidArgumentError("too much guidance")
                                        : absl::OkStatus();
  };
  Submit("bad", {.cfg_scale = 6});
  Submit("good");
  RunUntilIdle();
  EXPECT_THAT(Finished("bad").status, StatusIs(absl::StatusCode::kInvalidArgument, _));
  EXPECT_THAT(Finished("good").status, IsOk());
  ExpectNothingHeld();
}

TEST_F(StepLoopTest, FailedRowDoesNotTouchTheOthers) {
  engine_.row_status = [](const Request& request, int32_t step) {
    return request.policy.cfg_scale > 0 && step == 2 ? absl::InternalError("NaN in its logits")
                                                     : absl::OkStatus();
  };
  Submit("good");
  Submit("bad", {.sparse = true, .cfg_scale = 1});
  Submit("too");
  RunUntilIdle();
  EXPECT_THAT(Finished("bad").status, StatusIs(absl::StatusCode::kInternal, HasSubstr("NaN")));
  EXPECT_THAT(Finished("good").status, IsOk());
  EXPECT_THAT(Finished("too").status, IsOk());
  EXPECT_EQ(Scrape().Value("sparsed_nan_rows_total"), 1);
  ExpectNothingHeld();
}

TEST_F(StepLoopTest, OtherFailuresOfARowAreNotCountedAsNan) {
  engine_.row_status = [](const Request&, int32_t) {
    return absl::ResourceExhaustedError("out of memory");
  };
  Submit("big");
  RunUntilIdle();
  EXPECT_THAT(Finished("big").status,
              StatusIs(absl::StatusCode::kInternal, HasSubstr("out of memory")));
  EXPECT_EQ(Scrape().Value("sparsed_nan_rows_total"), 0);
  ExpectNothingHeld();
}

TEST_F(StepLoopTest, RowWithoutAResultFails) {
  engine_.lose_last_result = true;
  Submit("a");
  RunUntilIdle();
  EXPECT_THAT(Finished("a").status, StatusIs(absl::StatusCode::kInternal, _));
  ExpectNothingHeld();
}

TEST_F(StepLoopTest, RowsTakeTurnsWithinTheTokenBudget) {
  // Each row has 400 tokens, two fit the budget of 1000.
  for (int i = 0; i < 4; ++i) {
    Submit("row" + std::to_string(i), {.prompt_tokens = 390, .generation_tokens = 10, .steps = 10});
  }
  for (int i = 0; i < 10; ++i) {
    loop_.RunRound();
    std::map<RequestId, int> steps = {{1, 0}, {2, 0}, {3, 0}, {4, 0}};
    for (const auto& batch : engine_.batches()) {
      EXPECT_EQ(batch.size(), 2u);
      for (RequestId id : batch) ++steps[id];
    }
    const auto [low, high] = std::minmax_element(
        steps.begin(), steps.end(), [](auto& a, auto& b) { return a.second < b.second; });
    EXPECT_LE(high->second - low->second, 1);
  }
}

TEST_F(StepLoopTest, RowLargerThanTheBudgetStillGetsItsTurns) {
  Submit("small0", {.steps = 6});
  Submit("large", {.prompt_tokens = 2000, .steps = 3});
  Submit("small1", {.steps = 6});
  for (int i = 0; i < 6; ++i) loop_.RunRound();
  EXPECT_THAT(engine_.batches(), ElementsAre(ElementsAre(1, 3), ElementsAre(2), ElementsAre(1, 3),
                                             ElementsAre(2), ElementsAre(1, 3), ElementsAre(2)));
}

TEST_F(StepLoopTest, GuidanceTakesTwiceTheTokenBudget) {
  Submit("a", {.prompt_tokens = 300, .cfg_scale = 1});
  Submit("b", {.prompt_tokens = 300, .cfg_scale = 1});
  loop_.RunRound();
  EXPECT_THAT(engine_.batches(), ElementsAre(ElementsAre(1)));
}

TEST_F(StepLoopTest, StalledReaderLosesItsRequestAndNobodyElse) {
  Submit("stalled", {.steps = 50, .sparse = true});
  Submit("patient", {.steps = 50, .mailbox = {.final_only = true}});
  Submit("reading", {.steps = 50});
  for (int i = 0; i < 6; ++i) {
    loop_.RunRound();
    TakeAll(mailboxes_["reading"].get());
    clock_.Advance(kStallLimit / 5);
  }
  EXPECT_EQ(engine_.load().rows, 2);
  EXPECT_THAT(Finished("stalled").status,
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("30 s")));
  EXPECT_EQ(Scrape().Value("sparsed_stream_stalls_total"), 1);
}

TEST_F(StepLoopTest, NameIsFreeAndCountsAreThereWhenTheLastEventArrives) {
  Submit("a", {.steps = 1, .sparse = true});
  bool checked = false;
  mailboxes_["a"]->SetWake([&] {
    std::vector<Event> events = TakeAll(mailboxes_["a"].get());
    if (!std::holds_alternative<FinishedEvent>(events.back())) return;
    checked = true;
    EXPECT_FALSE(admission_.Cancel("a"));
    const auto metrics = Scrape();
    EXPECT_EQ(metrics.Value("sparsed_requests_total", "code", "OK"), 1);
    EXPECT_EQ(metrics.Value("sparsed_requests_running"), 0);
    EXPECT_EQ(metrics.Value("sparsed_mask_bytes_used"), 0);
  });
  RunUntilIdle();
  EXPECT_TRUE(checked);
}

TEST_F(StepLoopTest, MetricsAgreeWithWhatTheCallersSaw) {
  engine_.on_step = [&](absl::Span<const RequestId>) { clock_.Advance(kSecond); };
  Submit("dense", {.prompt_tokens = 5, .generation_tokens = 6, .steps = 3});
  Submit("sparse", {.prompt_tokens = 4, .generation_tokens = 10, .steps = 5, .sparse = true});
  RunUntilIdle();
  const FinishedEvent dense = Finished("dense");
  const FinishedEvent sparse = Finished("sparse");
  const auto metrics = Scrape();
  EXPECT_EQ(metrics.Value("sparsed_requests_total", "code", "OK"), 2);
  EXPECT_EQ(metrics.Count("sparsed_request_seconds"), 2);
  EXPECT_DOUBLE_EQ(metrics.Sum("sparsed_request_seconds"),
                   dense.timings.total_seconds + sparse.timings.total_seconds);
  EXPECT_DOUBLE_EQ(metrics.Sum("sparsed_first_commit_seconds"),
                   *dense.timings.first_commit_seconds + *sparse.timings.first_commit_seconds);
  EXPECT_EQ(metrics.Count("sparsed_inter_commit_seconds"), 2 + 4);
  EXPECT_EQ(metrics.Count("sparsed_request_queue_seconds"), 2);
  EXPECT_EQ(metrics.Value("sparsed_denoising_steps_total", "phase", "dense"), 3 + 1);
  EXPECT_EQ(metrics.Value("sparsed_denoising_steps_total", "phase", "build"), 1);
  EXPECT_EQ(metrics.Value("sparsed_denoising_steps_total", "phase", "sparse"), 3);
  EXPECT_EQ(metrics.Count("sparsed_step_seconds", "phase", "sparse"), 3);
  EXPECT_NEAR(metrics.Sum("sparsed_step_seconds", "phase", "sparse"),
              sparse.timings.phase(StepPhase::kSparse).seconds, 1e-9);
  EXPECT_EQ(metrics.Value("sparsed_committed_tokens_total"), 16);
  EXPECT_EQ(metrics.Value("sparsed_prompt_tokens_total"), 9);
  EXPECT_EQ(metrics.Count("sparsed_tokens_per_forward"), 8);
  EXPECT_EQ(metrics.Sum("sparsed_tokens_per_forward"), 16);
  EXPECT_EQ(metrics.Count("sparsed_batch_rows"), 5);
  EXPECT_EQ(metrics.Sum("sparsed_batch_rows"), 8);
  EXPECT_EQ(metrics.Sum("sparsed_batch_tokens"), 3 * 11 + 5 * 14);
  EXPECT_EQ(metrics.Count("sparsed_attention_density", "preset", "sparsed"), 5);
  EXPECT_NEAR(metrics.Sum("sparsed_attention_density", "preset", "sparsed"),
              5 * sparse.sparsity.mean_density, 1e-9);
  EXPECT_EQ(metrics.Count("sparsed_attention_retained_mass", "preset", "sparsed"), 1);
  EXPECT_NEAR(metrics.Sum("sparsed_mask_build_seconds"), sparse.timings.mask_build_seconds, 1e-9);
  EXPECT_EQ(metrics.Value("sparsed_mask_builds_total"), 1);
  EXPECT_EQ(metrics.Value("sparsed_mask_bytes_budget"), 4000);
  ExpectNothingHeld();
}

}  // namespace
}  // namespace sparsed
