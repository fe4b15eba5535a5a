// SPDX-License-Identifier: Apache-2.0
#include "sched/module/waits.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace gpushare {
namespace {

using namespace std::chrono_literals;

struct WaitCase {
  const char* description;
  std::vector<Turn> turns;
  Waited of_100ms;
};

const WaitCase kWaitCases[] = {
    {"nobody is there", {}, {0ms, 0ms}},
    {"nobody has work", {{.used = 50ms}}, {0ms, 0ms}},
    {"alone on its GPU", {{.wants_gpu = true, .used = 100ms}}, {0ms, 0ms}},
    {"another tenant has the rest", {{.wants_gpu = true, .used = 30ms}}, {70ms, 70ms}},
    {"frozen all the time", {{.wants_gpu = true}}, {100ms, 100ms}},
    {"two take turns",
     {{.wants_gpu = true, .used = 30ms}, {.wants_gpu = true, .used = 60ms}},
     {100ms, 10ms}},
    {"one of two has no work",
     {{.wants_gpu = true, .used = 80ms}, {.wants_gpu = false, .used = 20ms}},
     {20ms, 20ms}},
    {"two run at once",
     {{.is_at_once = true, .wants_gpu = true, .used = 100ms},
      {.is_at_once = true, .wants_gpu = true, .used = 90ms}},
     {10ms, 0ms}},
    {"two GPUs, one of them taken",
     {{.gpu = 0, .wants_gpu = true, .used = 100ms}, {.gpu = 1, .wants_gpu = true}},
     {100ms, 0ms}},
    {"the log brings more than there was time for",
     {{.wants_gpu = true, .used = 130ms}},
     {0ms, 0ms}},
};

TEST(Waited, IsAsInTheTable) {
  for (const WaitCase& one : kWaitCases)
    EXPECT_EQ(waited(one.turns, 100ms), one.of_100ms) << one.description;
}

TEST(Waited, FullIsNeverMoreThanSomeWhateverComes) {
  std::minstd_rand random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<Turn> turns(random() % 6);
    for (Turn& turn : turns)
      turn = {.gpu = static_cast<uint32_t>(random() % 3),
              .is_at_once = random() % 2 == 0,
              .wants_gpu = random() % 3 != 0,
              .used = Nanos(random() % 120'000'000)};
    const Waited found = waited(turns, 100ms);
    EXPECT_LE(Nanos{}, found.full);
    EXPECT_LE(found.full, found.some);
    EXPECT_LE(found.some, 100ms);
  }
}

TEST(Pressure, AveragesComeUpToThePartAndFallAgain) {
  Pressure pressure;
  for (int i = 0; i < 100; ++i) pressure.add(50ms, 100ms);  // 10 s
  EXPECT_NEAR(pressure.avg10(), 0.5 * (1 - std::exp(-1)), 0.01);
  EXPECT_NEAR(pressure.avg60(), 0.5 * (1 - std::exp(-10 / 60.0)), 0.01);
  for (int i = 0; i < 20'000; ++i) pressure.add(50ms, 100ms);
  EXPECT_NEAR(pressure.avg10(), 0.5, 1e-6);
  EXPECT_NEAR(pressure.avg300(), 0.5, 0.01);
  EXPECT_EQ(pressure.total(), 20'100 * 50ms);
  for (int i = 0; i < 1'000; ++i) pressure.add(0ms, 100ms);
  EXPECT_LT(pressure.avg10(), 0.001);
}

TEST(Pressure, NoMoreIsWaitedThanTimePassed) {
  Pressure pressure;
  for (int i = 0; i < 1000; ++i) pressure.add(500ms, 100ms);
  EXPECT_LE(pressure.avg10(), 1.0);
  EXPECT_EQ(pressure.total(), 1000 * 100ms);
}

Time at(Nanos since) { return Time{since}; }

TEST(CapPeriods, CountsThePeriodsWithWorkAndThoseThatWereCut) {
  CapPeriods periods;
  Nanos now = 0ms;
  const auto pass = [&](Nanos time, bool has_work, Nanos throttled) {
    now += time;
    periods.add(at(now), time, 100ms, has_work, throttled);
  };
  for (int i = 0; i < 10; ++i) pass(100ms, true, i % 2 == 0 ? 40ms : 0ms);
  EXPECT_EQ(periods.periods(), 10u);
  EXPECT_EQ(periods.throttled(), 5u);
  for (int i = 0; i < 10; ++i) pass(100ms, false, 0ms);
  EXPECT_EQ(periods.periods(), 10u) << "without work no period counts";
}

TEST(CapPeriods, ALookMayCoverManyPeriodsOrAPartOfOne) {
  CapPeriods short_ones;
  short_ones.add(at(100ms), 100ms, 1ms, true, 10'500us);
  EXPECT_EQ(short_ones.periods(), 100u);
  EXPECT_EQ(short_ones.throttled(), 11u);
  CapPeriods long_one;
  for (int i = 1; i <= 10; ++i) long_one.add(at(i * 100ms), 100ms, 1s, true, 50ms);
  EXPECT_EQ(long_one.periods(), 1u);
  EXPECT_EQ(long_one.throttled(), 1u) << "ten looks, one period";
}

TEST(CapPeriods, WithoutACapNothingCounts) {
  CapPeriods periods;
  periods.add(at(1s), 1s, 0ms, true, 0ms);
  EXPECT_EQ(periods.periods(), 0u);
}

}  // namespace
}  // namespace gpushare
