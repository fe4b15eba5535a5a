// SPDX-License-Identifier: Apache-2.0
#include "sched/jobs/starts.h"

#include <gtest/gtest.h>

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr ProcessId kProgram{100, 1}, kSecondProgram{101, 1};

class StartsTest : public ::testing::Test {
 protected:
  // A step after so long, in which one program is seen.
  bool see(Nanos passed, const Starts::Seen& seen) {
    now_ += passed;
    starts_.begin();
    return starts_.see(seen, now_);
  }

  Starts starts_;
  Time now_{1s};
};

TEST_F(StartsTest, AreOverWhenOneHasHadTenMillisecondsOfAGpu) {
  EXPECT_TRUE(see(1ms, {.process = kProgram, .used = 9ms}));
  EXPECT_TRUE(starts_.is_starting(kProgram, 0));
  EXPECT_EQ(starts_.worked(kProgram), 0ns);
  EXPECT_FALSE(see(2ms, {.process = kProgram, .used = 2ms}));
  EXPECT_FALSE(starts_.is_starting(kProgram, 0));
  EXPECT_EQ(starts_.worked(kProgram), 2ms);
  EXPECT_FALSE(see(2ms, {.process = kProgram, .used = 1ms}));
  EXPECT_EQ(starts_.worked(kProgram), 0ns) << "of the last step";
}

TEST_F(StartsTest, AreNoneWhereNothingTells) {
  EXPECT_FALSE(see(1ms, {.process = kProgram, .can_start = false}));
  EXPECT_FALSE(see(1ms, {.process = kProgram})) << "once over, always";
  EXPECT_EQ(starts_.next_step(now_), Time::max());
}

TEST_F(StartsTest, OnEachGpuByItself) {
  starts_.begin();
  EXPECT_TRUE(starts_.see({.process = kProgram, .gpu = 0, .used = 9ms}, now_));
  EXPECT_TRUE(starts_.see({.process = kProgram, .gpu = 1, .used = 9ms}, now_));
  EXPECT_FALSE(starts_.is_starting(kSecondProgram, 0));
}

TEST_F(StartsTest, TheNextStepComesSoonWhileOneWasSeenOfLate) {
  (void)see(1ms, {.process = kProgram, .used = 1ms});
  EXPECT_EQ(starts_.next_step(now_), now_ + Starts::kStep);
  (void)see(Starts::kWatch, {.process = kProgram});
  EXPECT_EQ(starts_.next_step(now_), now_ + Starts::kIdleStep);
}

// 400 programs, each 9 ms past the others: more than three times what there is.
TEST_F(StartsTest, WhatIsUsedUpIsPaidBackAndNoMoreThanWasSaved) {
  int beside = 0;
  for (pid_t pid = 1000; pid < 1400; ++pid)
    beside += see(1ms, {.process = {pid, 1}, .used = 9ms, .passes = true}) ? 1 : 0;
  EXPECT_NEAR(beside, 1000 / 9, 3) << "one second at once";
  EXPECT_EQ(starts_.next_step(now_), now_ + Starts::kStep);
  EXPECT_FALSE(see(19s, {.process = kProgram})) << "a second is paid back in twenty";
  EXPECT_FALSE(see(1ms, {.process = kProgram, .is_frozen = true}));
  EXPECT_EQ(starts_.next_step(now_), Time::max()) << "it does nothing";
  EXPECT_TRUE(see(2s, {.process = kProgram}));
  EXPECT_TRUE(see(0s, {.process = kSecondProgram, .gpu = 1})) << "each GPU has its own";
}

TEST_F(StartsTest, WhatPassesNobodyIsNotCounted) {
  for (pid_t pid = 1000; pid < 1400; ++pid)
    EXPECT_TRUE(see(1ms, {.process = {pid, 1}, .used = 9ms}));
}

TEST_F(StartsTest, WhatIsKnownLateCounts) {
  starts_.charge(0, 1010ms, now_);
  EXPECT_FALSE(see(1ms, {.process = kProgram}));
  EXPECT_TRUE(see(1s, {.process = kProgram}));
}

}  // namespace
}  // namespace gpushare
