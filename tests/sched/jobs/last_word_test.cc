// SPDX-License-Identifier: Apache-2.0
// A program that says that its work is done, at its end, before the driver takes its context down.
#include "tests/sched/jobs/job_turn_rig.h"

namespace gpushare::test {
namespace {

// At its end, before the driver takes its context down.
TEST_F(JobTurnTest, WhoSaysThatItsWorkIsDoneKeepsNobodyWaiting) {
  run_and_launch();
  now_ += 1ms;
  turn_.look(now_, {&look_, 1});
  EXPECT_TRUE(turn_.wants_gpu());
  look_.is_done = true;
  stop();
  EXPECT_FALSE(turn_.wants_gpu());
  EXPECT_EQ(turn_.state(), TurnState::kHeld) << "at once, without its patience";
  EXPECT_FALSE(hold().is_frozen);
}

TEST_F(JobTurnTest, WhatIsStillInLineOfItIsWaitedFor) {
  run_and_launch();
  look_.is_done = look_.waits_for_work = look_.wants_gpu = true;
  stop();
  EXPECT_TRUE(turn_.wants_gpu()) << "another thread waits for it";
  EXPECT_EQ(turn_.state(), TurnState::kStopping);
}

// A function that runs at its exit.
TEST_F(JobTurnTest, WhoLaunchesAfterItsLastWordIsHeldLikeAnyOther) {
  run_and_launch();
  look_.is_done = true;
  stop();
  launch();
  look_.is_done = false;
  look_.is_at_gate = true;
  stop();
  EXPECT_TRUE(turn_.wants_gpu());
  EXPECT_TRUE(hold().is_gate_closed);
  run();
  EXPECT_EQ(hold(), (ProcessHold{.process = look_.process}));
}

// It would not be believed that its kernel of a minute is over.
TEST_F(JobTurnTest, WhoLiesThatItIsDoneIsStoppedWhereItIs) {
  run_and_launch();
  look_.is_done = look_.wants_gpu = true;
  for (int turn = 0; turn < 5; ++turn) {
    look_.was_at_work = turn_.state() == TurnState::kHeld;
    stop_for(kTurnGrace + 5ms);
    look_.was_at_work = true;
    stop_for(kTurnGrace + 5ms);
    ASSERT_TRUE(hold().is_frozen);
    stop();
    ASSERT_EQ(turn_.state(), TurnState::kStopped);
    run();
    stop();
    EXPECT_TRUE(hold().is_frozen) << "at once from then on";
  }
}

// The whole of a process that ends is in the driver, where it must not be stopped.
TEST_F(JobTurnTest, WhoWasFrozenBeforeAndIsDoneNowIsNot) {
  look_.has_boundary = false;
  run_and_launch();
  stop_for(3 * kTurnGrace);  // it stays away from its gate
  look_.waits_for_work = look_.wants_gpu = true;
  run_and_launch();
  stop_for(3 * kTurnGrace);
  ASSERT_TRUE(hold().is_frozen);
  run();
  look_ = {.process = look_.process,
           .has_shim = true,
           .is_done = true,
           .launches = look_.launches,
           .last_launch = look_.last_launch};
  stop();
  EXPECT_FALSE(hold().is_frozen);
  EXPECT_EQ(turn_.state(), TurnState::kHeld);
}

}  // namespace
}  // namespace gpushare::test
