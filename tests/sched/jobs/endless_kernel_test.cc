// SPDX-License-Identifier: Apache-2.0
// A kernel that never ends, which only a freeze can stop.
#include "tests/sched/jobs/job_turn_rig.h"

namespace gpushare::test {
namespace {

class EndlessKernel : public JobTurnTest {
 protected:
  EndlessKernel() {
    look_.has_boundary = false;
    run_and_launch();
    stop_for(1ms);
    look_.was_at_work = look_.wants_gpu = true;
    stop_for(3 * kTurnGrace);
    EXPECT_EQ(turn_.state(), TurnState::kStopped);
  }
  // A turn, and the begin of the stop after it. Returns whether it was frozen without a grace.
  bool is_frozen_at_once_after_a_turn() {
    look_.was_at_work = false;  // alone it is not switched at all
    run();
    now_ += 100ms;
    stop();
    return hold().is_frozen;
  }
};

TEST_F(EndlessKernel, IsFrozenAtOnceTheNextTimes) {
  for (int i = 0; i < JobTurn::kBlindFreezes; ++i) {
    EXPECT_TRUE(is_frozen_at_once_after_a_turn()) << i;
    stop();
    EXPECT_EQ(turn_.state(), TurnState::kStopped);
  }
  launch();
  EXPECT_FALSE(is_frozen_at_once_after_a_turn()) << "it launches again, and may come to its gate";
}

TEST_F(EndlessKernel, IsTestedNowAndThenAndFrozenWhenItIsSeenAtWork) {
  int tests = 0;
  for (int i = 0; i < 3 * (JobTurn::kBlindFreezes + 1); ++i) {
    if (!is_frozen_at_once_after_a_turn()) {
      ++tests;
      EXPECT_EQ(turn_.state(), TurnState::kHeld);
      look_.was_at_work = look_.wants_gpu = true;
    }
    stop_for(2 * kTurnGrace);
    EXPECT_EQ(turn_.state(), TurnState::kStopped) << i;
    EXPECT_TRUE(turn_.wants_gpu());
  }
  EXPECT_EQ(tests, 3);
}

TEST_F(EndlessKernel, ThatHasEndedAfterAllIsNotGivenTurnsForEver) {
  int turns = 0;
  do {
    (void)is_frozen_at_once_after_a_turn();
    stop_for(2 * kTurnGrace);
  } while (turn_.wants_gpu() && ++turns < 100);
  EXPECT_LE(turns, JobTurn::kBlindFreezes + 1);
}

}  // namespace
}  // namespace gpushare::test
