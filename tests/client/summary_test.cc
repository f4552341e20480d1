// SPDX-License-Identifier: Apache-2.0
#include "client/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sparsed::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(SummaryTest, SecondsGetAReadableUnit) {
  EXPECT_EQ(FormatSeconds(0), "0 µs");
  EXPECT_EQ(FormatSeconds(-1), "0 µs");
  EXPECT_EQ(FormatSeconds(0.00025), "250 µs");
  EXPECT_EQ(FormatSeconds(0.0351), "35.1 ms");
  EXPECT_EQ(FormatSeconds(2.44), "2.44 s");
  EXPECT_EQ(FormatSeconds(200.4), "3 min 20 s");
}

TEST(SummaryTest, StatusLineLeavesOutAMassThatIsNotKnown) {
  v1::Progress progress;
  progress.set_step(3);
  progress.set_steps(64);
  progress.set_phase(v1::PHASE_DENSE);
  progress.set_density(1);
  progress.set_step_seconds(0.05);
  EXPECT_EQ(StatusLine(progress), "step 3/64 · dense · density 1.000 · 50 ms");
  progress.set_phase(v1::PHASE_SPARSE);
  progress.set_density(0.25);
  progress.set_retained_mass(0.9);
  EXPECT_EQ(StatusLine(progress), "step 3/64 · sparse · density 0.250 · mass 0.900 · 50 ms");
}

TEST(SummaryTest, RateLeavesOutTheQueue) {
  v1::GenerateResponse response;
  response.mutable_usage()->set_generated_tokens(20);
  response.mutable_timings()->set_total_seconds(12);
  response.mutable_timings()->set_queue_seconds(2);
  EXPECT_THAT(Summary(response), HasSubstr("20 tokens in 10 s · 2 tokens/s"));
}

TEST(SummaryTest, EveryPhaseHasItsLine) {
  v1::GenerateResponse response;
  auto* phase = response.mutable_timings()->add_phases();
  phase->set_phase(v1::PHASE_DENSE);
  phase->set_steps(4);
  phase->set_seconds(2);
  response.mutable_timings()->add_phases()->set_phase(v1::PHASE_BUILD);
  const std::string summary = Summary(response);
  EXPECT_THAT(summary, HasSubstr("dense    4 in 2 s, 500 ms each\n"));
  EXPECT_THAT(summary, Not(HasSubstr("build")));
}

TEST(SummaryTest, DensityOfTheMaskStandsBesideThatOfAllSteps) {
  v1::GenerateResponse response;
  response.mutable_resolved()->mutable_attention()->set_preset("sparsed");
  response.mutable_sparsity()->set_mean_density(0.5);
  EXPECT_THAT(Summary(response), HasSubstr("sparsed · density of all steps 0.500\n"));
  response.mutable_sparsity()->set_density(0.25);
  response.mutable_sparsity()->set_retained_mass(0.9);
  EXPECT_THAT(Summary(response),
              HasSubstr("sparsed · density 0.250 (all steps 0.500) · retained mass 0.900\n"));
}

TEST(SummaryTest, TheGuardIsExplained) {
  v1::GenerateResponse response;
  EXPECT_THAT(Summary(response), Not(HasSubstr("ran dense")));
  response.mutable_sparsity()->set_guard("short_canvas");
  EXPECT_THAT(Summary(response),
              HasSubstr("           ran dense: canvas too short for sparse attention to pay; "
                        "--no-guard keeps it sparse\n"));
  response.mutable_sparsity()->set_guard("high_density");
  EXPECT_THAT(Summary(response), HasSubstr("ran dense: the mask keeps too many blocks to pay"));
  response.mutable_sparsity()->set_guard("a_newer_reason");
  EXPECT_THAT(Summary(response), HasSubstr("ran dense: a_newer_reason"));
}

TEST(SummaryTest, EachLayerHasItsLine) {
  v1::Sparsity sparsity;
  EXPECT_EQ(LayerTable(sparsity), "");
  for (const double density : {0.25, 0.125}) {
    v1::LayerSparsity& layer = *sparsity.add_layers();
    layer.set_density(density);
    layer.set_retained_mass(1 - density);
  }
  EXPECT_EQ(LayerTable(sparsity),
            "  layer 0  density 0.250 · retained mass 0.750\n"
            "  layer 1  density 0.125 · retained mass 0.875\n");
}

TEST(SummaryTest, ARebuildIsAPhase) {
  v1::Progress progress;
  progress.set_phase(v1::PHASE_REBUILD);
  EXPECT_THAT(StatusLine(progress), HasSubstr(" · rebuild · "));
}

TEST(SummaryTest, EmptyResponseHasNoDivisionByZero) {
  EXPECT_THAT(Summary({}), HasSubstr("0 tokens in 0 µs · 0 tokens/s"));
}

}  // namespace
}  // namespace sparsed::client
