// SPDX-License-Identifier: Apache-2.0
// How busy a lone process is taken to be where jobs take turns: samples tell of a time in which it
// may have waited at its gate.
#include "sched/account/lone_context.h"

#include <gtest/gtest.h>

namespace gpushare {
namespace {

using namespace std::chrono_literals;

class LoneContextTest : public ::testing::Test {
 protected:
  static Time at(Nanos time) { return Time{1000s + time}; }
  // One a second.
  void sample(double rate, Nanos from, Nanos to) {
    for (Nanos time = from; time <= to; time += 1s)
      lone_.sample(at(time - 1s), at(time), rate, std::chrono::duration_cast<Nanos>(rate * 1s));
  }

  LoneContext lone_;
};

TEST_F(LoneContextTest, WhoHasWaitedForItsTurnIsBusyUntilSamplesTellOfIt) {
  sample(0, 0s, 5s);
  EXPECT_EQ(lone_.rate(at(5s)), 0);
  lone_.end_work(/*is_held=*/true, at(5s));
  lone_.begin_work(at(5300ms));
  EXPECT_EQ(lone_.rate(at(5290ms)), 0) << "the log tells of the time before only now";
  EXPECT_EQ(lone_.rate(at(5300ms)), 1);
  sample(0, 6s, 6s);
  EXPECT_EQ(lone_.rate(at(7200ms)), 1);
  sample(0.25, 7s, 8s);
  EXPECT_EQ(lone_.rate(at(8s)), 0.25);
}

TEST_F(LoneContextTest, WhatItDoesInItsTurnAfterItsWorkIsNoUse) {
  sample(0, 0s, 5s);
  lone_.begin_work(at(5s));
  lone_.end_work(/*is_held=*/false, at(5400ms));
  EXPECT_EQ(lone_.rate(at(5300ms)), 1);
  EXPECT_EQ(lone_.rate(at(5500ms)), 0);
}

// It has the turn while the agent waits for its next launch, and others start meanwhile.
TEST_F(LoneContextTest, WhatItRestsInItsTurnIsWhatTheSamplesSay) {
  sample(0.04, 0s, 5s);
  lone_.begin_work(at(5s));
  for (Nanos time = 5s; time < 6s; time += 10ms)
    lone_.hear({.launches = static_cast<uint64_t>(std::min<Nanos>(time, 5100ms) / 1ms)}, at(time));
  EXPECT_EQ(lone_.rate(at(5090ms)), 1);
  EXPECT_EQ(lone_.rate(at(5500ms)), 0.04);
}

// While many programs start the log is read late, and tells of times before what was heard last.
TEST_F(LoneContextTest, ItsRestsAreRememberedForALateLog) {
  for (Nanos time = 0s; time < 3s; time += 5ms) {
    lone_.hear({.launches = static_cast<uint64_t>(time < 1s ? 0 : 1 + time / 100ms)}, at(time));
  }
  EXPECT_TRUE(lone_.is_excused(1s, at(500ms))) << "it had launched nothing";
  for (Nanos time = 1s; time < 2900ms; time += 100ms) {
    EXPECT_FALSE(lone_.is_excused(1s, at(time + LoneContext::kRest / 2)));
    EXPECT_TRUE(lone_.is_excused(1s, at(time + 60ms)));
  }
}

// One that works a little again and again, and has the GPU to itself.
TEST_F(LoneContextTest, AShortRestChangesNothingOfWhatSamplesTell) {
  lone_.begin_work(at(0s));
  sample(0.25, 1s, 5s);
  for (Nanos time = 5s; time < 8s; time += 100ms) {
    lone_.end_work(/*is_held=*/false, at(time));
    lone_.begin_work(at(time + 50ms));
    EXPECT_EQ(lone_.rate(at(time + 60ms)), 0.25);
    if (time % 1s == 0s) sample(0.25, time, time);
  }
  lone_.end_work(/*is_held=*/false, at(8s));
  sample(0, 9s, 10s);
  lone_.begin_work(at(10s));
  EXPECT_EQ(lone_.rate(at(10100ms)), 1) << "after a long one it does";
}

TEST_F(LoneContextTest, EachTurnAfterOneIsHeldIsWorkOfItsOwn) {
  for (Nanos time{}; time < 10s; time += 200ms) {  // turns of 100 ms
    lone_.begin_work(at(time));
    if (time % 1s == 0s) sample(0.5, time, time);
    EXPECT_EQ(lone_.rate(at(time + 50ms)), 1);
    lone_.end_work(/*is_held=*/true, at(time + 100ms));
  }
}

}  // namespace
}  // namespace gpushare
