// SPDX-License-Identifier: Apache-2.0
#include "sched/account/lone_use.h"

#include <gtest/gtest.h>

#include <random>

namespace gpushare {
namespace {

using namespace std::chrono_literals;

Time lone_at(Nanos time) { return Time{100s + time}; }

class LoneUseTest : public ::testing::Test {
 protected:
  // It used so much of the time alone in this span, or all of that. Returns what is to be added to
  // what was presumed of it.
  Nanos settle(Nanos from, Nanos until, Nanos used) {
    Nanos sum{};
    told_ = use_.take(lone_at(from), lone_at(until));
    used_ = std::min(used, told_.alone);
    told_.spread(used_, [&](Time begin, Time end, Nanos more) {
      EXPECT_LT(begin, end);
      EXPECT_GE(begin, lone_at(from));
      EXPECT_LE(end, lone_at(until));
      sum += more;
    });
    return sum;
  }

  LoneUse use_;
  LoneUse::Told told_;
  Nanos used_{};
};

TEST_F(LoneUseTest, ItTellsWhatItDidAloneAndBesideOthers) {
  use_.add_shared(lone_at(0ms), lone_at(40ms));
  EXPECT_EQ(use_.add_alone(lone_at(40ms), lone_at(200ms), 0.125), 20ms);
  EXPECT_EQ(settle(0ms, 200ms, 80ms), 60ms);
  EXPECT_EQ(told_.shared, 40ms);
  EXPECT_EQ(told_.alone, 160ms);
  EXPECT_EQ(told_.presumed, 20ms);
  EXPECT_EQ(told_.rate(80ms), 0.5);
  EXPECT_EQ(settle(0ms, 200ms, 120ms), 0ms) << "it is told";
  EXPECT_LT(told_.rate(0ms), 0);
}

TEST_F(LoneUseTest, ASampleTellsOfItsOwnSpanOnly) {
  use_.add_alone(lone_at(0ms), lone_at(500ms), 1);
  EXPECT_EQ(settle(100ms, 300ms, 0ms), -200ms);
  EXPECT_EQ(settle(300ms, 500ms, 50ms), -150ms);
  EXPECT_EQ(settle(0ms, 100ms, 100ms), 0ms);
}

// By its word it rested for 100 ms, and then it worked for as long: both are told of at once.
TEST_F(LoneUseTest, WhatIsRightStaysAsItIs) {
  use_.add_by_word(lone_at(0ms), lone_at(100ms));
  use_.add_alone(lone_at(100ms), lone_at(200ms), 1);
  EXPECT_EQ(settle(0ms, 200ms, 100ms), 0ms);
}

TEST_F(LoneUseTest, WhatIsNeverToldIsSpared) {
  use_.add_shared(lone_at(0ms), lone_at(100ms));
  use_.add_by_word(lone_at(100ms), lone_at(300ms));
  use_.add_alone(lone_at(300ms), lone_at(400ms), 0.25);
  EXPECT_TRUE(use_.is_open());
  LoneUse other;
  other.absorb(use_);
  const LoneUse::Untold untold = use_.close();
  EXPECT_EQ(untold.presumed, 25ms);
  EXPECT_EQ(untold.spared_by_rate, 75ms);
  EXPECT_EQ(untold.spared_by_word, 200ms);
  EXPECT_FALSE(use_.is_open());
  EXPECT_EQ(use_.close().spared_by_rate, 0ms);
  const LoneUse::Told held = other.take(lone_at(50ms), lone_at(400ms));
  EXPECT_EQ(held.shared, 150ms) << "what has been charged";
  EXPECT_EQ(held.at_rest, 200ms);
}

TEST_F(LoneUseTest, WhatIsOldOrTooMuchIsForgotten) {
  use_.add_by_word(lone_at(0s), lone_at(1s));
  EXPECT_EQ(use_.forget(lone_at(1s + LoneUse::kKept - 1ms)).spared_by_word, 0s);
  EXPECT_EQ(use_.forget(lone_at(1s + LoneUse::kKept)).spared_by_word, 1s);
  for (size_t i = 0; i < LoneUse::kMost + 10; ++i)
    use_.add_by_word(lone_at(10s + 2ms * i), lone_at(10s + 2ms * i + 1ms));
  EXPECT_EQ(use_.forget(lone_at(10s)).spared_by_word, 10ms);
}

// Whatever was presumed, and however the samples cut the time: nothing of what was presumed, or of
// the time, is lost or told twice.
TEST_F(LoneUseTest, TheSumOfAllIsWhatWasSampled) {
  std::minstd_rand random(3);
  for (int run = 0; run < 50; ++run) {
    Nanos now{}, presumed{}, alone{}, told_presumed{}, told_alone{}, settled{}, used{};
    Nanos from = now;
    for (int step = 0; step < 200; ++step) {
      const Nanos length = 1ms * (1 + random() % 30);
      if (random() % 3 == 0) {
        now += length;  // not resident
        continue;
      }
      presumed += use_.add_alone(lone_at(now), lone_at(now + length),
                                 static_cast<double>(random() % 5) / 4);
      alone += length;
      now += length;
      if (now - from < 200ms) continue;
      const Nanos until = now - 1ms * (random() % 5);
      settled += settle(from, until, 1ms * (random() % 40));
      used += used_;
      told_presumed += told_.presumed;
      told_alone += told_.alone;
      from = until;
    }
    const LoneUse::Untold rest = use_.close();
    EXPECT_EQ(told_presumed + rest.presumed, presumed);
    EXPECT_EQ(told_alone + rest.presumed + rest.spared_by_rate, alone);
    EXPECT_NEAR((told_presumed + settled - used).count(), 0, 2000);
  }
}

}  // namespace
}  // namespace gpushare
