// SPDX-License-Identifier: Apache-2.0
#include "sched/jobs/job_turn.h"

#include <gtest/gtest.h>

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kTurnGrace = 30ms;

// A job of one process, and what the driver and the shim would do.
class JobTurnTest : public ::testing::Test {
 protected:
  // Looks, then stops it or lets it run.
  void stop() {
    turn_.look(now_, {&look_, 1});
    turn_.stop(now_, kTurnGrace);
    carry_out();
  }
  void run() {
    turn_.look(now_, {&look_, 1});
    turn_.run(now_);
    carry_out();
  }
  void stop_for(Nanos time) {
    for (const Time end = now_ + time; now_ < end; now_ += 1ms) stop();
  }
  void launch() {
    ++look_.launches;
    look_.last_launch = now_;
  }
  void come_to_the_boundary() { look_.at_boundary = now_; }
  ProcessHold hold() const { return turn_.holds().at(0); }

  Time now_{1000s};
  ProcessLook look_{.process = {100, 1},
                    .has_shim = true,
                    .has_boundary = true,
                    .begun = 50,
                    .launches = 1000,
                    .last_launch = now_};
  JobTurn turn_;

 private:
  void carry_out() { look_.is_frozen = hold().is_frozen; }
};

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
  run();
  launch();
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
  run();
  launch();
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

TEST_F(JobTurnTest, WhatStandsFrozenWantsTheGpuWhateverIsKnownOfItsWork) {
  look_ = {.process = look_.process, .wants_gpu = true};
  stop_for(10ms);
  ASSERT_EQ(turn_.state(), TurnState::kStopped);
  look_.wants_gpu = false;
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
  run();
  launch();
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

// A kernel that never ends, which only a freeze can stop.
class EndlessKernel : public JobTurnTest {
 protected:
  EndlessKernel() {
    look_.has_boundary = false;
    run();
    launch();
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

TEST_F(JobTurnTest, WhoIsFrozenByTheUserNeitherWantsNorOccupies) {
  run();
  launch();
  look_.is_out = true;
  look_.is_frozen = true;
  stop();
  EXPECT_FALSE(turn_.wants_gpu());
  EXPECT_FALSE(turn_.occupies());
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
  run();
  launch();
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

// At its end, before the driver takes its context down.
TEST_F(JobTurnTest, WhoSaysThatItsWorkIsDoneKeepsNobodyWaiting) {
  run();
  launch();
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
  run();
  launch();
  look_.is_done = look_.waits_for_work = look_.wants_gpu = true;
  stop();
  EXPECT_TRUE(turn_.wants_gpu()) << "another thread waits for it";
  EXPECT_EQ(turn_.state(), TurnState::kStopping);
}

// A function that runs at its exit.
TEST_F(JobTurnTest, WhoLaunchesAfterItsLastWordIsHeldLikeAnyOther) {
  run();
  launch();
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
  run();
  launch();
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
  run();
  launch();
  stop_for(3 * kTurnGrace);  // it stays away from its gate
  look_.waits_for_work = look_.wants_gpu = true;
  run();
  launch();
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

TEST_F(JobTurnTest, AWaitForWorkIsWorkUntilTheGpuSaysThatThereIsNone) {
  run();
  launch();
  look_.waits_for_work = look_.wants_gpu = true;
  now_ += 10 * JobTurn::kPatience;
  turn_.look(now_, {&look_, 1});
  EXPECT_TRUE(turn_.wants_gpu());
  look_.wants_gpu = false;  // it was stopped in its wait by SIGSTOP
  turn_.look(now_, {&look_, 1});
  EXPECT_FALSE(turn_.wants_gpu());
}

// Its gate is no use: it would come there when its kernel of a minute has ended.
TEST_F(JobTurnTest, WhoWaitsForALongKernelWithoutABoundaryIsStoppedWhereItIs) {
  look_.has_boundary = false;
  run();
  launch();
  look_.waits_for_work = look_.wants_gpu = true;
  now_ += JobTurn::kPatience;
  stop();
  EXPECT_TRUE(hold().is_frozen);
}

// A job of iterations of 10 ms, in turns of ten of them. Each is waited for.
class LastIteration : public JobTurnTest {
 protected:
  // Of the first turn it is known how long the last one takes, of the second that it is right.
  LastIteration() {
    take_turn();
    take_turn();
  }
  void begin() {
    now_ += 1us;
    ++look_.begun;
    look_.began = now_;
    launch();
    turn_.look(now_, {&look_, 1});
  }
  // Ten iterations; the last one takes `length`.
  void take_turn(Nanos length = 10ms) {
    begin_last();
    now_ += length;
    come_to_the_boundary();
    look_.waits_for_work = false;
    stop();
    ASSERT_EQ(turn_.state(), TurnState::kHeld);
  }
  // The last one has begun just now, and it is known to be that.
  void begin_last() {
    run();
    look_.at_boundary.reset();
    look_.waits_for_work = true;
    for (int i = 0; i < 9; ++i, now_ += 10ms) begin();
    begin();
    stop();
  }
  bool is_about_to_stand() {
    turn_.look(now_, {&look_, 1});
    return turn_.is_about_to_stand(now_);
  }
};

TEST_F(LastIteration, IsOverWhenThoseOfTheTurnsBeforeSayIt) {
  begin_last();
  EXPECT_EQ(turn_.expected_stand(), now_ + 10ms);
  now_ += 10ms - JobTurn::kLead - 1ms;
  EXPECT_FALSE(is_about_to_stand());
  EXPECT_EQ(turn_.next(now_), now_ + 1ms) << "neither sooner nor later";
  now_ += 1ms;
  EXPECT_TRUE(is_about_to_stand());
  look_.waits_for_work = false;
  EXPECT_FALSE(is_about_to_stand()) << "it may be launching still";
  EXPECT_LE(turn_.next(now_), now_ + JobTurn::kLead / 2);
  look_.waits_for_work = true;
  now_ += 2 * JobTurn::kLead + 1us;
  EXPECT_FALSE(is_about_to_stand()) << "it takes longer than it used to";
  come_to_the_boundary();
  stop();
  EXPECT_EQ(turn_.expected_stand(), std::nullopt);
}

TEST_F(LastIteration, IsNotTrustedAfterOneThatTookLonger) {
  take_turn(10ms + JobTurn::kMostMiss + 1us);
  begin_last();
  now_ += 10ms - JobTurn::kLead;
  EXPECT_FALSE(is_about_to_stand());
  now_ += JobTurn::kLead;
  come_to_the_boundary();
  stop();
  begin_last();
  now_ += 10ms - JobTurn::kLead;
  EXPECT_TRUE(is_about_to_stand()) << "the last one was as those before";
}

TEST_F(LastIteration, ThatTakesLongerFromNowOnIsLearnt) {
  for (int turn = 0; turn < 3; ++turn) take_turn(13ms);
  begin_last();
  EXPECT_EQ(turn_.expected_stand(), now_ + 13ms);
  now_ += 13ms - JobTurn::kLead;
  EXPECT_TRUE(is_about_to_stand());
}

TEST_F(LastIteration, IsNotWaitedForWhileItsTurnGoesOn) {
  begin_last();
  run();
  EXPECT_EQ(turn_.expected_stand(), std::nullopt);
}

// What it says of itself may be anything.
TEST_F(LastIteration, CountsAndInstantsThatCannotBeDoNoHarm) {
  for (const auto& [begun, began] :
       {std::pair{uint64_t{1}, now_ + 1h}, std::pair{~uint64_t{0}, Time{1ns}},
        std::pair{uint64_t{0}, Time{}}, std::pair{~uint64_t{0} / 2, Time::max() - 1s}}) {
    run();
    look_.at_boundary.reset();
    begin();
    look_.begun = begun;
    look_.began = began;
    stop();
    (void)is_about_to_stand();
    EXPECT_GT(turn_.next(now_), now_);
    look_.at_boundary = Time{1ns};
    stop();
  }
}

}  // namespace
}  // namespace gpushare
