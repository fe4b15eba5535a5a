// SPDX-License-Identifier: Apache-2.0
#include "sched/account/iteration_counts.h"

#include <gtest/gtest.h>

#include <utility>

namespace gpushare {
namespace {

using namespace std::chrono_literals;

class IterationCountsTest : public ::testing::Test {
 protected:
  // The program has so many more iterations of so long.
  void iterate(uint64_t count, uint64_t us) {
    said_.counts[time_class_of(us)] += count;
    said_.sum_us += count * us;
  }
  TimeHistogram look(Nanos later = 1s) { return counts_.take(said_, now_ += later); }
  static uint64_t sum(const TimeHistogram& of) {
    uint64_t sum = 0;
    for (const uint64_t count : of.counts) sum += count;
    return sum;
  }

  IterationCounts counts_;
  TimeHistogram said_;
  Time now_{1h};
};

TEST(TimeClasses, HoldTheirBounds) {
  for (const auto& [us, at] : {std::pair(0, 0), std::pair(100, 0), std::pair(101, 1),
                               std::pair(1'000, 3), std::pair(1'001, 4)})
    EXPECT_EQ(time_class_of(static_cast<uint64_t>(us)), static_cast<size_t>(at)) << us;
  EXPECT_EQ(time_class_of(100'000'000), kTimeClasses - 2);
  EXPECT_EQ(time_class_of(100'000'001), kTimeClasses - 1);
}

TEST_F(IterationCountsTest, EachLookGivesWhatCameSince) {
  iterate(10, 1'500);
  EXPECT_EQ(look(), said_);
  EXPECT_EQ(look(), TimeHistogram{});
  iterate(3, 40);
  const TimeHistogram gain = look();
  EXPECT_EQ(gain.counts[0], 3u);
  EXPECT_EQ(sum(gain), 3u);
  EXPECT_EQ(gain.sum_us, 120u);
}

TEST_F(IterationCountsTest, AnotherSlotCountsFromTheBegin) {
  iterate(10, 1'500);
  look();
  said_ = {};
  iterate(4, 1'500);
  EXPECT_EQ(look(), said_);
}

TEST_F(IterationCountsTest, WhoCountsFasterThanAGpuIsLaunchedToCountsNothing) {
  look();
  iterate(3'000'000, 50);
  EXPECT_EQ(look(1s), TimeHistogram{});
  iterate(900'000, 50);
  EXPECT_EQ(sum(look(1s)), 900'000u) << "the lie is not caught up on";
}

TEST_F(IterationCountsTest, TheSumIsWhatTheClassesAllow) {
  look();
  iterate(10, 1'500);
  said_.sum_us += uint64_t{1} << 60;
  EXPECT_EQ(look().sum_us, 10 * 2'000u);
  iterate(10, 1'500);
  said_.sum_us -= 15'000;
  EXPECT_EQ(look().sum_us, 10 * 1'000u);
}

TEST_F(IterationCountsTest, AddsUp) {
  TimeHistogram all;
  for (int i = 0; i < 5; ++i) {
    iterate(2, 7'000);
    add(all, look());
  }
  EXPECT_EQ(all, said_);
}

}  // namespace
}  // namespace gpushare
