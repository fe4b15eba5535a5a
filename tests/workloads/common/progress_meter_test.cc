// SPDX-License-Identifier: Apache-2.0
#include "tests/workloads/common/progress_meter.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/workloads/common/quantiles.h"

namespace gpushare::workloads {
namespace {

constexpr uint64_t kMs = 1'000'000;

struct Case {
  const char* description;
  uint64_t to_ms;                                     // every case begins at 10 ms
  std::vector<std::pair<uint64_t, double>> readings;  // time in ms, total
  double per_ms, measured_ms;
};

class ProgressMeterCase : public testing::TestWithParam<Case> {};

TEST_P(ProgressMeterCase, HasItsRateAndInterval) {
  const Case& row = GetParam();
  ProgressMeter meter(10 * kMs, row.to_ms == 0 ? UINT64_MAX : row.to_ms * kMs);
  for (const auto& [ms, total] : row.readings) meter.add(ms * kMs, total);
  EXPECT_DOUBLE_EQ(meter.per_ms(), row.per_ms);
  EXPECT_DOUBLE_EQ(meter.measured_ms(), row.measured_ms);
}

INSTANTIATE_TEST_SUITE_P(
    All, ProgressMeterCase,
    testing::Values(
        // 10 a ms: 120 at the first instant; 20 a ms: 240 at the second
        Case{"InterpolatesAtBothInstants",
             20,
             {{8, 100}, {12, 140}, {18, 200}, {22, 280}, {30, 999}},
             12,
             10},
        Case{"AReadingAtTheInstantCountsAsItIs", 20, {{10, 5}, {20, 25}}, 2, 10},
        Case{"StandingStillIsZero", 20, {{1, 50}, {30, 50}}, 0, 10},
        Case{"EndsWhereTheReadingsEnd", 0, {{10, 0}, {15, 50}}, 10, 5},
        Case{"BeginsWithTheFirstReadingThatIsLate", 20, {{14, 100}, {24, 200}}, 10, 6}),
    [](const auto& row) { return row.param.description; });

TEST(ProgressMeter, NoReadingsAreNoProgress) {
  const ProgressMeter meter(10 * kMs, 20 * kMs);
  EXPECT_DOUBLE_EQ(meter.per_ms(), 0.0);
  EXPECT_DOUBLE_EQ(meter.measured_ms(), 0.0);
}

TEST(Quantiles, AreValuesOfTheSample) {
  const Quantiles five({5, 1, 4, 2, 3});
  EXPECT_EQ(five.at(0.5), 3);
  EXPECT_EQ(five.at(0.99), 5);
  EXPECT_EQ(five.at(0.2), 1);
  EXPECT_EQ(five.min(), 1);
  EXPECT_EQ(five.max(), 5);
  EXPECT_DOUBLE_EQ(five.mean(), 3.0);
  EXPECT_EQ(Quantiles({7}).at(0.0), 7);
}

}  // namespace
}  // namespace gpushare::workloads
