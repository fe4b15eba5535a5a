// SPDX-License-Identifier: Apache-2.0
// Whether a job wants the GPU, while it has its turn and while it stands.
#include "tests/sched/jobs/job_turn_rig.h"

namespace gpushare::test {
namespace {

TEST_F(JobTurnTest, WhatStandsFrozenWantsTheGpuWhateverIsKnownOfItsWork) {
  look_ = {.process = look_.process, .wants_gpu = true};
  stop_for(10ms);
  ASSERT_EQ(turn_.state(), TurnState::kStopped);
  look_.wants_gpu = false;
  stop();
  EXPECT_TRUE(turn_.wants_gpu());
}

TEST_F(JobTurnTest, AQuietJobStandsAtOnceAndItsFirstLaunchIsSeen) {
  run();
  now_ += JobTurn::kPatience;
  turn_.look(now_, {&look_, 1});
  EXPECT_FALSE(turn_.wants_gpu());
  stop();
  EXPECT_EQ(turn_.state(), TurnState::kHeld);
  EXPECT_TRUE(hold().is_gate_closed);
  launch();
  look_.is_at_gate = true;
  stop();
  EXPECT_TRUE(turn_.wants_gpu());
}

// A kernel of a second: nothing is launched, and the log shows it as soon as another one runs.
// Its last launch was before the other one's turn.
TEST_F(JobTurnTest, WhoWasLetInWantsTheGpuUntilItsFirstLaunchCanHaveCome) {
  run_and_launch();
  stop();
  come_to_the_boundary();
  stop_for(100ms);
  ASSERT_EQ(turn_.state(), TurnState::kHeld);
  run();
  look_.at_boundary.reset();  // it goes on, and has not launched yet
  turn_.look(now_, {&look_, 1});
  EXPECT_TRUE(turn_.wants_gpu());
  now_ += JobTurn::kPatience;
  turn_.look(now_, {&look_, 1});
  EXPECT_FALSE(turn_.wants_gpu());
}

TEST_F(JobTurnTest, AJobThatWorksWithoutLaunchingLendsItsTurnMoreAndMoreRarely) {
  run();
  Nanos lent_before{};
  for (int i = 0; i < 10; ++i) {
    const Time begin = now_;
    do {
      now_ += 1ms;
      turn_.look(now_, {&look_, 1});
    } while (turn_.wants_gpu());
    const Nanos lent_after = now_ - begin;
    EXPECT_GE(lent_after, lent_before);
    EXPECT_LE(lent_after, JobTurn::kLongestPatience);
    lent_before = lent_after;
    stop();
    EXPECT_EQ(turn_.state(), TurnState::kHeld);
    look_.was_at_work = look_.wants_gpu = true;
    turn_.look(now_, {&look_, 1});
    EXPECT_TRUE(turn_.wants_gpu());
    look_.was_at_work = false;
    launch();
    run();
  }
  EXPECT_GE(lent_before, JobTurn::kLongestPatience - 1ms);
}

// It read its results, was switched in for that, and has waited for its user since: it held its
// turn for ever, and the programs that were frozen for it never ran again.
TEST_F(JobTurnTest, WhatWasAtWorkOnceAndHasNothingToDoSinceLendsItsTurn) {
  run();
  now_ += JobTurn::kPatience;
  stop();
  look_.was_at_work = look_.wants_gpu = true;
  stop();
  EXPECT_TRUE(turn_.wants_gpu());
  look_.was_at_work = false;
  run();
  EXPECT_TRUE(turn_.wants_gpu());
  look_.wants_gpu = false;  // as the log and the driver's samples say a little later
  now_ += JobTurn::kLongestPatience;
  turn_.look(now_, {&look_, 1});
  EXPECT_FALSE(turn_.wants_gpu());
}

TEST_F(JobTurnTest, WhoIsFrozenByTheUserNeitherWantsNorOccupies) {
  run_and_launch();
  look_.is_out = true;
  look_.is_frozen = true;
  stop();
  EXPECT_FALSE(turn_.wants_gpu());
  EXPECT_FALSE(turn_.occupies());
}

TEST_F(JobTurnTest, AWaitForWorkIsWorkUntilTheGpuSaysThatThereIsNone) {
  run_and_launch();
  look_.waits_for_work = look_.wants_gpu = true;
  now_ += 10 * JobTurn::kPatience;
  turn_.look(now_, {&look_, 1});
  EXPECT_TRUE(turn_.wants_gpu());
  look_.wants_gpu = false;  // it was stopped in its wait by SIGSTOP
  turn_.look(now_, {&look_, 1});
  EXPECT_FALSE(turn_.wants_gpu());
}

}  // namespace
}  // namespace gpushare::test
