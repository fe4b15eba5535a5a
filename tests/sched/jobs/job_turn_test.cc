// SPDX-License-Identifier: Apache-2.0
// How a job is stopped: at its next boundary, at its gate, or where it is; and how it goes on.
#include "tests/sched/jobs/job_turn_rig.h"

namespace gpushare::test {
namespace {

TEST_F(JobTurnTest, WhereNothingIsAskedItRunsAsItLikes) {
  turn_.look(now_, {&look_, 1});
  EXPECT_EQ(turn_.state(), TurnState::kFree);
  EXPECT_EQ(hold(), (ProcessHold{.process = look_.process}));
  EXPECT_FALSE(turn_.occupies());
}

TEST_F(JobTurnTest, ItStopsAtItsNextBoundary) {
  run();
  now_ += 100ms;
  launch();
  stop();
  EXPECT_EQ(turn_.state(), TurnState::kStopping);
  EXPECT_TRUE(turn_.occupies()) << "its iteration goes on";
  EXPECT_EQ(hold(), (ProcessHold{.process = look_.process, .run_until = 50}));
  now_ += 8ms;
  come_to_the_boundary();
  const Time stood = now_;
  now_ += 1ms;
  stop();
  EXPECT_EQ(turn_.state(), TurnState::kHeld);
  EXPECT_FALSE(turn_.occupies());
  EXPECT_EQ(turn_.stood(), stood) << "by the program's clock";
  EXPECT_TRUE(turn_.wants_gpu());
  EXPECT_EQ(turn_.rung(), Rung::kBoundary);
  look_.at_boundary.reset();
  run();
  EXPECT_EQ(turn_.state(), TurnState::kRunning);
  EXPECT_EQ(hold(), (ProcessHold{.process = look_.process}));
}

TEST_F(JobTurnTest, WhatComesToNoBoundaryIsStoppedAtItsGateAndThenWhereItIs) {
  run_and_launch();
  stop();
  now_ += kTurnGrace - 1ms;
  launch();
  stop();
  EXPECT_FALSE(hold().is_gate_closed);
  now_ += 1ms;
  stop();
  EXPECT_TRUE(hold().is_gate_closed);
  EXPECT_FALSE(hold().is_frozen);
  now_ += kTurnGrace;
  launch();
  stop();
  EXPECT_TRUE(hold().is_frozen);
  EXPECT_TRUE(turn_.occupies()) << "until the driver has done it";
  stop();
  EXPECT_EQ(turn_.state(), TurnState::kStopped);
  EXPECT_FALSE(turn_.occupies());
  now_ += 1h;
  look_.wants_gpu = true;
  stop();
  EXPECT_TRUE(turn_.wants_gpu());
  run();
  EXPECT_FALSE(hold().is_frozen);
}

// It was frozen for nothing otherwise, and could never say that it wants the GPU again.
TEST_F(JobTurnTest, WhatGoesQuietBeforeItsBoundaryStandsAtItsGate) {
  run_and_launch();
  stop_for(kTurnGrace + 2ms);
  EXPECT_EQ(turn_.state(), TurnState::kHeld);
  EXPECT_TRUE(hold().is_gate_closed);
  EXPECT_FALSE(hold().is_frozen);
  stop_for(1s);
  EXPECT_FALSE(hold().is_frozen);
  EXPECT_FALSE(turn_.wants_gpu());
  launch();
  look_.is_at_gate = true;
  stop();
  EXPECT_TRUE(turn_.wants_gpu());
}

TEST_F(JobTurnTest, UntrustedIterationsAreNoBoundary) {
  look_.has_boundary = false;
  launch();
  stop();
  EXPECT_TRUE(hold().is_gate_closed) << "from the start";
  EXPECT_NE(hold().run_until, 0u) << "so that it wakes us";
  look_.is_at_gate = true;
  stop();
  EXPECT_EQ(turn_.state(), TurnState::kHeld);
}

TEST_F(JobTurnTest, AProgramThatHasLaunchedNothingYetOccupiesNothing) {
  look_.has_boundary = false;
  look_.launches = 0;
  look_.begun = 0;
  stop();
  EXPECT_EQ(turn_.state(), TurnState::kHeld);
  EXPECT_TRUE(hold().is_gate_closed);
  EXPECT_EQ(hold().run_until, 1u);
  EXPECT_FALSE(turn_.wants_gpu());
  launch();
  look_.is_at_gate = true;
  stop_for(1s);
  EXPECT_TRUE(turn_.wants_gpu());
  EXPECT_EQ(turn_.rung(), Rung::kGate) << "it is frozen for nothing";
}

TEST_F(JobTurnTest, WithoutTheShimItIsStoppedWhereItIs) {
  look_ = {.process = look_.process, .wants_gpu = true};
  run();
  stop();
  EXPECT_TRUE(hold().is_frozen);
  EXPECT_EQ(hold().run_until, 0u);
  stop();
  EXPECT_EQ(turn_.state(), TurnState::kStopped);
}

TEST_F(JobTurnTest, WithoutTheShimAndWithoutWorkItIsLeftAloneUntilItHasSome) {
  look_ = {.process = look_.process};
  stop_for(1s);
  EXPECT_EQ(turn_.state(), TurnState::kHeld);
  EXPECT_FALSE(hold().is_frozen);
  look_.wants_gpu = true;
  stop();
  EXPECT_TRUE(hold().is_frozen);
}

// A client of MPS that launches by ways that the shim does not see.
TEST_F(JobTurnTest, WhatCanBeStoppedByNothingKeepsNobodyWaitingForEver) {
  look_.can_freeze = false;
  look_.has_boundary = false;
  run();
  for (int i = 0; i < 200 && turn_.state() != TurnState::kHeld; ++i) {
    now_ += 1ms;
    launch();
    stop();
  }
  EXPECT_EQ(turn_.state(), TurnState::kHeld);
  EXPECT_FALSE(hold().is_frozen);
  EXPECT_TRUE(hold().is_gate_closed);
}

TEST_F(JobTurnTest, WhoGoesOnLaunchingWhileItStandsIsHeldAtItsGate) {
  run();
  stop();
  come_to_the_boundary();
  stop();
  ASSERT_EQ(turn_.state(), TurnState::kHeld);
  for (int i = 0; i < 19; ++i) {
    now_ += 1ms;
    launch();
    stop();
    EXPECT_FALSE(hold().is_gate_closed) << i;
  }
  for (int i = 0; i < 3; ++i) {
    now_ += 1ms;
    launch();
    stop();
  }
  EXPECT_TRUE(hold().is_gate_closed);
  EXPECT_EQ(turn_.state(), TurnState::kHeld) << "nobody waits for it";
}

// It says that it stands at its boundary, or queued far more than a grace's work.
TEST_F(JobTurnTest, WhoStandsAndIsStillAtWorkAfterAGraceIsStoppedWhereItIs) {
  run();
  stop();
  come_to_the_boundary();
  look_.was_at_work = look_.wants_gpu = true;
  stop_for(kTurnGrace);
  EXPECT_FALSE(hold().is_frozen) << "what it has queued may finish";
  now_ += 2ms;
  stop();
  EXPECT_TRUE(hold().is_frozen);
}

TEST_F(JobTurnTest, OneThatComesWhileItsJobIsHeldIsHeldWithIt) {
  stop();
  come_to_the_boundary();
  stop();
  ASSERT_EQ(turn_.state(), TurnState::kHeld);
  const ProcessLook both[] = {look_, {.process = {101, 1}, .has_shim = true}};
  turn_.look(now_, both);
  turn_.stop(now_, kTurnGrace);
  EXPECT_TRUE(turn_.holds().at(1).is_gate_closed);
  EXPECT_EQ(turn_.state(), TurnState::kHeld);
}

TEST_F(JobTurnTest, WhoIsToGoOnBeforeItStoodGoesOn) {
  run_and_launch();
  stop();
  ASSERT_EQ(turn_.state(), TurnState::kStopping);
  run();
  EXPECT_EQ(turn_.state(), TurnState::kRunning);
  EXPECT_EQ(hold().run_until, 0u);
}

TEST_F(JobTurnTest, ItsFirstIterationAfterItWasLetInIsKnown) {
  stop();
  come_to_the_boundary();
  stop();
  run();
  EXPECT_EQ(turn_.began(), Time{});
  now_ += 1ms;
  look_.begun = 51;
  look_.began = now_ - 300us;
  look_.at_boundary.reset();
  turn_.look(now_, {&look_, 1});
  EXPECT_EQ(turn_.began(), now_ - 300us);
}

// Ranks of one training: the second has learnt its iterations later.
TEST_F(JobTurnTest, AllItsProcessesStopAtTheSameIteration) {
  std::vector<ProcessLook> both{look_, look_};
  both[1].process = {101, 1};
  both[1].begun = 41;
  turn_.look(now_, both);
  turn_.run(now_);
  for (int i = 0; i < 20; ++i) {
    turn_.look(now_ += 10ms, both);
    for (ProcessLook& each : both) {
      ++each.begun;
      ++each.launches;
      each.last_launch = now_;
    }
  }
  ++both[0].begun;  // the first is ahead by one
  turn_.look(now_, both);
  turn_.stop(now_, kTurnGrace);
  EXPECT_EQ(turn_.holds()[0].run_until, 71u);
  EXPECT_EQ(turn_.holds()[1].run_until, 62u) << "it still joins the collective of the other's";
  both[0].at_boundary = now_;
  turn_.look(now_, both);
  turn_.stop(now_, kTurnGrace);
  EXPECT_TRUE(turn_.occupies()) << "one stands, the other does not";
  both[1].at_boundary = now_;
  turn_.look(now_, both);
  turn_.stop(now_, kTurnGrace);
  EXPECT_EQ(turn_.state(), TurnState::kHeld);
}

// Its gate is no use: it would come there when its kernel of a minute has ended.
TEST_F(JobTurnTest, WhoWaitsForALongKernelWithoutABoundaryIsStoppedWhereItIs) {
  look_.has_boundary = false;
  run_and_launch();
  look_.waits_for_work = look_.wants_gpu = true;
  now_ += JobTurn::kPatience;
  stop();
  EXPECT_TRUE(hold().is_frozen);
}

}  // namespace
}  // namespace gpushare::test
