// SPDX-License-Identifier: Apache-2.0
#include "sched/account/seen_rate.h"

#include <gtest/gtest.h>

namespace gpushare {
namespace {

using namespace std::chrono_literals;

Time at(Nanos since) { return Time(100s) + since; }

class SeenRateTest : public ::testing::Test {
 protected:
  // In a span of 200 ms.
  void note(Nanos least, Nanos held, Nanos until, Nanos busy = 200ms) {
    seen_.note(least, busy, held, 200ms, at(until));
  }
  Nanos least(Nanos held, Nanos until) const { return seen_.least(held, 200ms, at(until)); }

  SeenRate seen_;
};

TEST_F(SeenRateTest, NothingIsKnownAtFirst) { EXPECT_EQ(least(200ms, 1s), 0ns); }

TEST_F(SeenRateTest, TheSurestOfWhatWasSeenCounts) {
  note(30ms, 100ms, 1s);
  note(80ms, 100ms, 1200ms);
  note(0ms, 200ms, 1400ms);
  EXPECT_EQ(least(50ms, 1600ms), 40ms);
  EXPECT_EQ(least(200ms, 1600ms), 80ms) << "it did no more in any span";
}

// It worked for all of the little time that it was held; held for longer it rests.
TEST_F(SeenRateTest, WhoWorkedAllTheTimeThatItHadMayRestWhenItHasMore) {
  note(50ms, 50ms, 1s);
  EXPECT_EQ(least(110ms, 1200ms), 50ms);
}

TEST_F(SeenRateTest, WhoIsSeenToRestIsBelieved) {
  note(100ms, 100ms, 1s);
  note(0ms, 200ms, 1200ms, 2ms);
  EXPECT_EQ(least(100ms, 1400ms), 1ms);
}

TEST_F(SeenRateTest, WhatIsShortTellsNothing) {
  note(15ms, 15ms, 1s);
  EXPECT_EQ(least(15ms, 1200ms), 0ms);
}

TEST_F(SeenRateTest, WhatIsOldIsForgotten) {
  note(100ms, 100ms, 1s);
  Nanos now = 1200ms;
  for (; now < 4800ms; now += 200ms) note(10ms, 100ms, now);
  EXPECT_EQ(least(100ms, now), 100ms);
  for (; now < 9200ms; now += 200ms) note(10ms, 100ms, now);
  EXPECT_EQ(least(100ms, now), 10ms);
  EXPECT_EQ(least(100ms, 20s), 0ms) << "it was not there meanwhile";
  note(50ms, 100ms, 30s);
  note(10ms, 100ms, 37900ms);
  EXPECT_EQ(least(100ms, 38200ms), 10ms) << "of eight seconds at most";
}

}  // namespace
}  // namespace gpushare
