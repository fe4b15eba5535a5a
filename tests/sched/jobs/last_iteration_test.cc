// SPDX-License-Identifier: Apache-2.0
// When a job that is to stop will stand: its last iteration is expected to take as long as those of
// the turns before.
#include "tests/sched/jobs/job_turn_rig.h"

namespace gpushare::test {
namespace {

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
}  // namespace gpushare::test
