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
  // Returns what is to be added to the charge of this span.
  Nanos settle(Nanos from, Nanos until, Nanos busy) {
    Nanos sum{};
    told_ = use_.settle(lone_at(from), lone_at(until), busy, [&](Time begin, Time end, Nanos more) {
      EXPECT_LT(begin, end);
      EXPECT_GE(begin, lone_at(from));
      EXPECT_LE(end, lone_at(until));
      sum += more;
    });
    return sum;
  }

  LoneUse use_;
  LoneUse::Told told_;
};

TEST_F(LoneUseTest, WhatIsSampledBeyondTheTurnsBesideOthersWasAlone) {
  use_.add_shared(lone_at(0ms), lone_at(40ms));
  use_.add_alone(lone_at(40ms), lone_at(200ms), 0.125);
  EXPECT_EQ(settle(0ms, 200ms, 120ms), 60ms);
  EXPECT_EQ(told_.alone, 160ms);
  EXPECT_EQ(told_.used, 80ms);
  EXPECT_EQ(told_.rate, 0.5);
  EXPECT_EQ(settle(0ms, 200ms, 120ms), 0ms) << "it is told";
  EXPECT_LT(told_.rate, 0);
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

TEST_F(LoneUseTest, AlmostAllIsAll) {
  use_.add_alone(lone_at(0ms), lone_at(200ms), 0);
  EXPECT_EQ(settle(0ms, 200ms, 184ms), 200ms);
  use_.add_alone(lone_at(230ms), lone_at(260ms), 0);  // between two freezes
  EXPECT_EQ(settle(200ms, 400ms, 22ms), 30ms);
  use_.add_alone(lone_at(430ms), lone_at(460ms), 0);
  EXPECT_EQ(settle(400ms, 600ms, 15ms), 15ms);
}

TEST_F(LoneUseTest, WhatIsNeverToldIsSpared) {
  use_.add_shared(lone_at(0ms), lone_at(100ms));
  use_.add_by_word(lone_at(100ms), lone_at(300ms));
  use_.add_alone(lone_at(300ms), lone_at(400ms), 0.25);
  EXPECT_TRUE(use_.is_open());
  const LoneUse::Spared spared = use_.close();
  EXPECT_EQ(spared.by_rate, 75ms);
  EXPECT_EQ(spared.by_word, 200ms);
  EXPECT_FALSE(use_.is_open());
  EXPECT_EQ(use_.close().by_rate, 0ms);
}

TEST_F(LoneUseTest, WhatIsOldOrTooMuchIsForgotten) {
  use_.add_by_word(lone_at(0s), lone_at(1s));
  EXPECT_EQ(use_.forget(lone_at(1s + LoneUse::kKept - 1ms)).by_word, 0s);
  EXPECT_EQ(use_.forget(lone_at(1s + LoneUse::kKept)).by_word, 1s);
  for (size_t i = 0; i < LoneUse::kMost + 10; ++i)
    use_.add_by_word(lone_at(10s + 2ms * i), lone_at(10s + 2ms * i + 1ms));
  EXPECT_EQ(use_.forget(lone_at(10s)).by_word, 10ms);
}

// Whatever was charged, and however the samples cut the time: in the end the charge is what was
// sampled, as long as that is not more than it was resident for.
TEST_F(LoneUseTest, TheSumOfAllIsWhatWasSampled) {
  std::minstd_rand random(3);
  for (int run = 0; run < 50; ++run) {
    Nanos now{}, charged{}, sampled{};
    Nanos from = now;
    for (int step = 0; step < 200; ++step) {
      const Nanos length = 1ms * (1 + random() % 30);
      if (random() % 3 == 0) {
        now += length;  // not resident
        continue;
      }
      const double rate = static_cast<double>(random() % 5) / 4;
      use_.add_alone(lone_at(now), lone_at(now + length), rate);
      charged += Nanos(static_cast<int64_t>(static_cast<double>(length.count()) * rate));
      now += length;
      if (now - from < 200ms) continue;
      const Nanos until = now - 1ms * (random() % 5);
      const Nanos busy = 1ms * (random() % 40);
      charged += settle(from, until, busy);
      if (told_.rate < 0) continue;
      sampled += told_.used;
      EXPECT_TRUE(told_.used == busy || told_.used == told_.alone);
      from = until;
    }
    const LoneUse::Spared rest = use_.close();
    const Nanos open = settle(from, now, 0ms);
    EXPECT_EQ(open, 0ms);
    // What was resident after the last sample is charged as it was.
    EXPECT_GE((charged - sampled).count(), -1000) << rest.by_rate.count();
    EXPECT_LE((charged - sampled).count(), (now - from + 30ms).count());
  }
}

}  // namespace
}  // namespace gpushare
