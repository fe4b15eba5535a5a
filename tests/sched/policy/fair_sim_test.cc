// SPDX-License-Identifier: Apache-2.0
// The fair policy in a closed loop with a simulated GPU, in virtual time: which shares come out.
// The first second is for convergence, the next three are measured.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/sched/policy/policy_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr double kPoint = 1.0;  // what a share may be off, in percent of the GPU

TenantSettings with(const std::vector<Setting>& changes) {
  TenantSettings settings;
  EXPECT_TRUE(apply_settings(settings, changes).has_value());
  return settings;
}

TenantSettings weight(uint32_t value) { return with({{"weight", std::to_string(value)}}); }

void measure(PolicyRig& rig, Nanos warm_up = 1s) {
  rig.run_for(warm_up);
  rig.mark();
  rig.run_for(3s);
}

// A test of many rows, with a rig for each.
template <class Row>
class RowTest : public testing::TestWithParam<Row> {
 protected:
  const Row& row = this->GetParam();
  PolicyRig rig;
};
constexpr auto kByDescription = [](const auto& row) { return row.param.description; };

struct WeightRow {
  const char* description;
  std::vector<uint32_t> weights;
  std::vector<std::vector<Nanos>> kernels;  // empty: endless
};

class Weights : public RowTest<WeightRow> {};

TEST_P(Weights, AreTheSharesWithinAPoint) {
  std::vector<std::unique_ptr<BackToBack>> loads;
  for (size_t i = 0; i < row.weights.size(); ++i) {
    sim::Program& program = rig.add(weight(row.weights[i]));
    if (row.kernels.empty()) {
      program.endless();
    } else {
      loads.push_back(std::make_unique<BackToBack>(program, row.kernels[i]));
    }
  }
  measure(rig);
  const double all = std::reduce(row.weights.begin(), row.weights.end(), 0.0);
  for (size_t i = 0; i < row.weights.size(); ++i) {
    EXPECT_NEAR(rig.percent_of_used(i), 100 * row.weights[i] / all, kPoint) << "program " << i;
    EXPECT_EQ(rig.freezes(i), 0);
  }
  EXPECT_LT(rig.slice_changes(), 20 * row.weights.size()) << "slices must come to rest";
}

INSTANTIATE_TEST_SUITE_P(All, Weights,
                         testing::Values(WeightRow{"endless_30_70", {30, 70}, {}},
                                         WeightRow{
                                             "kernels_of_2_ms_30_70", {30, 70}, {{2ms}, {2ms}}},
                                         WeightRow{"four_1_2_3_4", {100, 200, 300, 400}, {}},
                                         WeightRow{"steep_1_30", {100, 3000}, {}},
                                         WeightRow{"lengths_from_50_us_to_50_ms",
                                                   {100, 200, 300, 400},
                                                   {{50us}, {2ms}, {50ms}, {50us, 5ms, 500us}}}),
                         kByDescription);

// A round of 64 turns is long, and a window has few of them, so that it measures coarsely.
TEST(FairClosedLoop, SixtyFourProgramsComeToRest) {
  constexpr size_t kPrograms = 64;
  PolicyRig rig;
  std::vector<std::unique_ptr<BackToBack>> loads;
  for (size_t i = 0; i < kPrograms; ++i)
    loads.push_back(std::make_unique<BackToBack>(rig.add(weight(100)),
                                                 std::vector<Nanos>{Nanos(700us) + 37us * i}));
  rig.run_for(10s);
  rig.mark();
  rig.run_for(10s);
  EXPECT_LT(rig.slice_changes(), 2 * kPrograms);
  for (size_t i = 0; i < kPrograms; ++i)
    EXPECT_NEAR(rig.percent_of_used(i), 100.0 / kPrograms, 0.1) << "program " << i;
}

TEST(FairClosedLoop, ConvergesWithinASecond) {
  PolicyRig rig;
  rig.add(weight(10)).endless();
  rig.add(weight(90)).endless();
  rig.run_for(1s);
  rig.mark();
  rig.run_for(500ms);
  EXPECT_NEAR(rig.percent_of_used(0), 10, kPoint);
}

struct YieldRow {
  const char* description;
  uint32_t yielding, endless;
  Nanos kernel, gap;
};

class EarlyYield : public RowTest<YieldRow> {};

// Launches, waits, launches: gives the GPU away after each kernel, long before its slice is over.
TEST_P(EarlyYield, StillGetsItsShare) {
  const sim::PeriodicKernel load(rig.add(weight(row.yielding)), row.kernel, row.gap);
  rig.add(weight(row.endless)).endless();
  measure(rig, 3s);
  EXPECT_NEAR(rig.percent_of_used(0), 100.0 * row.yielding / (row.yielding + row.endless), kPoint);
}

INSTANTIATE_TEST_SUITE_P(All, EarlyYield,
                         testing::Values(YieldRow{"a_third_by_2_ms", 30, 70, 2ms, 0us},
                                         YieldRow{"half_by_2_ms", 50, 50, 2ms, 10us},
                                         YieldRow{"a_tenth_by_500_us", 10, 90, 500us, 20us},
                                         YieldRow{"most_by_5_ms", 70, 30, 5ms, 10us}),
                         kByDescription);

TEST(FairClosedLoop, WhatALightProgramLeavesGoesToTheOthersByWeight) {
  PolicyRig rig;
  const sim::PeriodicKernel light(rig.add(weight(500)), 100us, 5ms);
  rig.add(weight(100)).endless();
  rig.add(weight(300)).endless();
  measure(rig, 3s);
  EXPECT_NEAR(rig.percent_of_used(2) / rig.percent_of_used(1), 3, 0.1);
  EXPECT_GT(rig.percent_of_time(1) + rig.percent_of_time(2),
            85);  // changes of context are nobody's
}

struct CapRow {
  const char* description;
  const char* cap;
  double percent;
  uint64_t most_freezes_per_s;
};

class CapAlone : public RowTest<CapRow> {};

TEST_P(CapAlone, IsKeptWithFewFreezes) {
  rig.add(with({{"max", row.cap}})).endless();
  measure(rig, 2s);
  EXPECT_NEAR(rig.percent_of_time(0), row.percent, kPoint);
  EXPECT_GT(rig.freezes(0), 0U);
  EXPECT_LE(rig.freezes(0), 3 * row.most_freezes_per_s);
}

INSTANTIATE_TEST_SUITE_P(All, CapAlone,
                         testing::Values(CapRow{"thirty", "30%", 30, 21},
                                         CapRow{"ten", "10%", 10, 21},
                                         CapRow{"ninety", "90%", 90, 21},
                                         CapRow{"one", "1%", 1, 11},
                                         CapRow{"short_period", "3000 10000", 30, 110},
                                         CapRow{"long_period", "300000 1000000", 30, 3}),
                         kByDescription);

TEST(FairClosedLoop, ACapBesideAnUncappedProgramNeedsNoFreezes) {
  PolicyRig rig;
  rig.add(with({{"max", "30%"}})).endless();
  rig.add({}).endless();
  measure(rig);
  EXPECT_NEAR(rig.percent_of_time(0), 30, kPoint);
  EXPECT_NEAR(rig.percent_of_used(1), 70, kPoint);
  EXPECT_LE(rig.freezes(0), 3U);
}

// What the hardware spends on changing contexts is part of nobody's cap: the program gets done what
// its cap is of what it gets done alone, and no more.
struct CapBesideRow {
  const char* description;
  const char* cap;
  double percent;
  int neighbours;
};

class CapBeside : public RowTest<CapBesideRow> {};

TEST_P(CapBeside, IsWhatGetsDone) {
  rig.add_endless(with({{"max", row.cap}}));
  for (int i = 0; i < row.neighbours; ++i) rig.add_endless({});
  rig.run_for(2s);
  rig.mark();
  rig.run_for(10s);
  EXPECT_GE(rig.percent_of_alone(0), row.percent - 0.5);
  EXPECT_LE(rig.percent_of_alone(0), row.percent + 0.05);
}

INSTANTIATE_TEST_SUITE_P(All, CapBeside,
                         testing::Values(CapBesideRow{"thirty", "30%", 30, 1},
                                         CapBesideRow{"ten", "10%", 10, 1},
                                         CapBesideRow{"five", "5%", 5, 1},
                                         CapBesideRow{"forty_five", "45%", 45, 1},
                                         CapBesideRow{"ten_beside_three", "10%", 10, 3},
                                         CapBesideRow{"twenty_beside_three", "20%", 20, 3}),
                         kByDescription);

TEST(FairClosedLoop, ACapAboveIdleClassWorkIsKeptAndTheRestIsTheirs) {
  PolicyRig rig;
  rig.add(with({{"max", "10%"}})).endless();
  rig.add(with({{"priority", "idle"}})).endless();
  rig.add(with({{"priority", "idle"}})).endless();
  measure(rig, 2s);
  EXPECT_NEAR(rig.percent_of_time(0), 10, kPoint);
  EXPECT_GT(rig.percent_of_time(1) + rig.percent_of_time(2), 80);
  EXPECT_LE(rig.freezes(0), 3 * 21U);
}

TEST(FairClosedLoop, ACapAboveTheShareDoesNothing) {
  PolicyRig rig;
  rig.add(with({{"max", "60%"}})).endless();
  rig.add({}).endless();
  measure(rig);
  EXPECT_NEAR(rig.percent_of_used(0), 50, kPoint);
  EXPECT_EQ(rig.freezes(0), 0U);
}

struct PriorityRow {
  const char* description;
  const char* above;
  const char* below;
};

class Background : public RowTest<PriorityRow> {};

TEST_P(Background, YieldsWithin350UsAndTakesWhatIsLeft) {
  const sim::PeriodicKernel periodic(rig.add(with({{"priority", row.above}})), 100us, 5ms);
  std::vector<sim::Program*> programs;
  std::vector<uint64_t> kernels;
  for (int i = 0; i < 3; ++i) {
    programs.push_back(&rig.add(with({{"priority", row.below}})));
    kernels.push_back(programs.back()->endless());
  }
  const auto executed = [&](size_t i) {
    return static_cast<double>(programs[i]->executed(kernels[i]).count());
  };
  rig.run_for(1s);
  const double before = executed(0) + executed(1) + executed(2);
  measure(rig, 0s);
  EXPECT_GT(executed(0) + executed(1) + executed(2) - before, 0.9 * 0.98 * 3e9);
  for (size_t i = 1; i <= 3; ++i) EXPECT_NEAR(rig.percent_of_used(i), 98.0 / 3, 2);
  EXPECT_GT(periodic.samples(), 500U);
  EXPECT_LE(periodic.percentile(0.5), 320);
  EXPECT_LE(periodic.percentile(0.99), 350);
  EXPECT_EQ(rig.most_best_effort(), 1U);
  EXPECT_LE(rig.freezes(1) + rig.freezes(2) + rig.freezes(3), 3 * 21U);
}

INSTANTIATE_TEST_SUITE_P(All, Background,
                         testing::Values(PriorityRow{"idle_below_normal", "normal", "idle"},
                                         PriorityRow{"idle_below_high", "high", "idle"},
                                         PriorityRow{"normal_below_high", "high", "normal"}),
                         kByDescription);

// The request that ends a pause finds the others in the background already.
TEST(FairClosedLoop, NoRequestOfTheHighClassWaitsForASliceHoweverLongThePause) {
  for (const Nanos pause : {Nanos(5ms), Nanos(100ms), Nanos(3s)}) {
    PolicyRig rig;
    sim::Program& service = rig.add(with({{"priority", "high"}}));
    for (int i = 0; i < 3; ++i) rig.add({}).endless();
    rig.run_for(1s);
    const sim::PeriodicKernel requests(service, 100us, pause);
    rig.run_for(std::max(Nanos(2s), 5 * pause));
    EXPECT_GE(requests.samples(), 4U);
    EXPECT_LE(requests.percentile(1), 400) << "us, every " << pause.count() << " ns";
  }
}

TEST(FairClosedLoop, TurnsInTheBackgroundFollowTheWeights) {
  PolicyRig rig;
  const sim::PeriodicKernel periodic(rig.add({}), 100us, 5ms);
  rig.add(with({{"priority", "idle"}, {"weight", "100"}})).endless();
  rig.add(with({{"priority", "idle"}, {"weight", "300"}})).endless();
  measure(rig);
  EXPECT_NEAR(rig.percent_of_used(2) / rig.percent_of_used(1), 3, 0.3);
}

TEST(FairClosedLoop, IdleProgramsAmongThemselvesShareBySlicesWithoutFreezes) {
  PolicyRig rig;
  rig.add(with({{"priority", "idle"}, {"weight", "100"}})).endless();
  rig.add(with({{"priority", "idle"}, {"weight", "300"}})).endless();
  measure(rig);
  EXPECT_NEAR(rig.percent_of_used(0), 25, kPoint);
  EXPECT_EQ(rig.freezes(0) + rig.freezes(1), 0U);
}

TEST(FairClosedLoop, WithoutCapsAndTurnsThePolicySleeps) {
  PolicyRig rig;
  rig.add({}).endless();
  rig.add({}).endless();
  measure(rig);
  EXPECT_LE(rig.steps(), 60U);  // 10 a second, and the ends of 5 windows
}

}  // namespace
}  // namespace gpushare
