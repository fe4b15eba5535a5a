// SPDX-License-Identifier: Apache-2.0
#include "tests/workloads/common/progress_meter.h"

#include <gtest/gtest.h>

#include "tests/workloads/common/quantiles.h"

namespace gpushare::workloads {
namespace {

constexpr uint64_t kMs = 1'000'000;

TEST(ProgressMeter, InterpolatesAtBothInstants) {
  ProgressMeter meter(10 * kMs, 20 * kMs);
  meter.add(8 * kMs, 100);
  meter.add(12 * kMs, 140);  // 10 a ms: 120 at the first instant
  meter.add(18 * kMs, 200);
  meter.add(22 * kMs, 280);  // 20 a ms: 240 at the second
  meter.add(30 * kMs, 999);
  EXPECT_DOUBLE_EQ(meter.per_ms(), 12.0);
  EXPECT_DOUBLE_EQ(meter.measured_ms(), 10.0);
}

TEST(ProgressMeter, AReadingAtTheInstantCountsAsItIs) {
  ProgressMeter meter(10 * kMs, 20 * kMs);
  meter.add(10 * kMs, 5);
  meter.add(20 * kMs, 25);
  EXPECT_DOUBLE_EQ(meter.per_ms(), 2.0);
}

TEST(ProgressMeter, StandingStillIsZero) {
  ProgressMeter meter(10 * kMs, 20 * kMs);
  meter.add(1 * kMs, 50);
  meter.add(30 * kMs, 50);
  EXPECT_DOUBLE_EQ(meter.per_ms(), 0.0);
}

TEST(ProgressMeter, EndsWhereTheReadingsEnd) {
  ProgressMeter meter(10 * kMs, UINT64_MAX);
  meter.add(10 * kMs, 0);
  meter.add(15 * kMs, 50);
  EXPECT_DOUBLE_EQ(meter.per_ms(), 10.0);
  EXPECT_DOUBLE_EQ(meter.measured_ms(), 5.0);
}

TEST(ProgressMeter, BeginsWithTheFirstReadingThatIsLate) {
  ProgressMeter meter(10 * kMs, 20 * kMs);
  meter.add(14 * kMs, 100);
  meter.add(24 * kMs, 200);
  EXPECT_DOUBLE_EQ(meter.per_ms(), 10.0);
  EXPECT_DOUBLE_EQ(meter.measured_ms(), 6.0);
}

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
