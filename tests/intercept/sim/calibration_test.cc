// SPDX-License-Identifier: Apache-2.0
// Compares the model with the shares, totals and latencies that were measured on an H200 (driver
// 580.159.04, 2026-11-20). The model knows none of them, only what one switch costs.
#include <gtest/gtest.h>

#include "tests/intercept/sim/programs.h"

namespace gpushare::sim {
namespace {

using namespace std::chrono_literals;

constexpr double kStepsPerMs = 57'389;  // of an endless kernel alone

struct SliceRow {
  const char* description;
  Micros first, second;
  double first_share;  // percent
  double steps_per_ms;
};

class Slices : public testing::TestWithParam<SliceRow> {};

TEST_P(Slices, GiveTheMeasuredSharesAndTotal) {
  const SliceRow& row = GetParam();
  auto&& [machine, one, two] = TwoPrograms();
  one.set_slice(row.first);
  two.set_slice(row.second);
  const uint64_t first = one.endless();
  const uint64_t second = two.endless();
  machine.run_for(1s);
  const Nanos before_first = one.executed(first);
  const Nanos before_second = two.executed(second);
  constexpr Nanos kPeriod = 3s;
  machine.run_for(kPeriod);
  const auto did_first = static_cast<double>((one.executed(first) - before_first).count());
  const auto did_second = static_cast<double>((two.executed(second) - before_second).count());
  const double total = did_first + did_second;
  EXPECT_NEAR(total / kPeriod.count() * kStepsPerMs, row.steps_per_ms, 0.05 * row.steps_per_ms);
  if (row.steps_per_ms > 0)
    EXPECT_NEAR(100 * did_first / total, row.first_share, 2);
  else
    EXPECT_EQ(total, 0);
}

INSTANTIATE_TEST_SUITE_P(Measured, Slices,
                         testing::Values(SliceRow{"default", 2048us, 2048us, 50.0, 51'532},
                                         SliceRow{"one_to_four", 1000us, 4000us, 19.7, 52'538},
                                         SliceRow{"ten_to_one", 10000us, 1000us, 91.1, 54'466},
                                         SliceRow{"one_to_ten", 2000us, 20000us, 8.8, 55'584},
                                         SliceRow{"long", 5000us, 5000us, 49.8, 54'351},
                                         SliceRow{"collapse", 100us, 100us, 51.0, 17'417},
                                         SliceRow{"best_effort", 2000us, 1us, 100, 47'700},
                                         SliceRow{"livelock", 1us, 1us, 0, 0}),
                         [](const auto& row_info) { return row_info.param.description; });

TEST(Latency, OfAShortKernelAloneIsWhatWasMeasured) {
  Machine machine;
  Program program(machine, 100);
  const PeriodicKernel periodic(program, 4us, 0us);
  machine.run_for(100ms);
  EXPECT_NEAR(periodic.percentile(0.5), 14, 1.4);
}

struct LatencyRow {
  const char* description;
  Micros other_slice;
  uint32_t mps_server;
  Nanos kernel, pause;
  double median_us;
};

class LatencyBesideEndless : public testing::TestWithParam<LatencyRow> {};

TEST_P(LatencyBesideEndless, IsWhatWasMeasured) {
  const LatencyRow& row = GetParam();
  Machine machine;
  Program other(machine, 100, 0, row.mps_server);
  Program program(machine, 200, 0, row.mps_server);
  other.set_slice(row.other_slice);
  other.endless();
  machine.run_for(10ms);
  const PeriodicKernel periodic(program, row.kernel, row.pause, 1);
  machine.run_for(3s);
  ASSERT_GE(periodic.samples(), 500U);
  EXPECT_NEAR(periodic.percentile(0.5), row.median_us, 0.1 * row.median_us);
}

INSTANTIATE_TEST_SUITE_P(
    Measured, LatencyBesideEndless,
    testing::Values(
        LatencyRow{"default_slices", 2048us, 0, 4us, 0us, 2'403},
        LatencyRow{"best_effort", 1us, 0, 4us, 0us, 193},
        LatencyRow{"mps", 2048us, 77, 4us, 0us, 141},
        // 100 us every 5 ms beside a best-effort process: 317, and 290 beside one of two
        LatencyRow{"best_effort_100us", 1us, 0, 105us, 4'700us, 317}),
    [](const auto& row_info) { return row_info.param.description; });

TEST(SwitchLogOfTwoEndlessKernels, ShowsTheMeasuredResidenceAndGaps) {
  auto&& [machine, one, two] = TwoPrograms();
  one.endless();
  two.endless();
  machine.run_for(2s);
  uint64_t place = 0;
  const auto log = machine.model.switch_log(0).read(place, 1 << 20, machine.model.now()).records;
  ASSERT_GT(log.size(), 1000U);
  for (size_t i = log.size() - 100; i + 1 < log.size(); ++i) {
    const Micros between = std::chrono::duration_cast<Micros>(log[i + 1].time - log[i].time);
    EXPECT_EQ(between, log[i].is_start ? 2192us : 80us);
  }
}

TEST(Freezing, HalfOfTheTimeTwentyFiveTimesASecondLeavesTheBystanderTheRest) {
  Machine machine;
  Program frozen(machine, 100);
  Program bystander(machine, 200);
  const uint64_t first = frozen.endless();
  const uint64_t second = bystander.endless();
  for (int round = 0; round < 50; ++round) {
    machine.model.freeze(0, frozen.channels()).value();
    machine.run_for(20ms);
    machine.model.thaw(0, frozen.channels()).value();
    machine.run_for(20ms);
  }
  const auto did_first = static_cast<double>(frozen.executed(first).count());
  const auto did_second = static_cast<double>(bystander.executed(second).count());
  const double total = did_first + did_second;
  EXPECT_NEAR(100 * did_second / total, 73.8, 2);
  EXPECT_NEAR(total / 2e9 * kStepsPerMs, 53'608, 0.05 * 53'608);
}

}  // namespace
}  // namespace gpushare::sim
