// SPDX-License-Identifier: Apache-2.0
#include "sched/enforce/standstill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr ProcessId kOne{100, 7};

class StandstillTest : public ::testing::Test {
 protected:
  // Looks on until then. One that is frozen begins to run 0.3 ms after its next trial.
  void look_for(Nanos time) {
    for (const Time until = now_ + time; now_ < until; now_ += Standstill::kBetweenLooks) {
      if (is_at_work_) one_.shown = now_;
      const Standstill::Verdict verdict = standstill_.look(now_, std::span(&one_, 1));
      found_ += static_cast<int>(verdict.found.size());
      for (const Standstill::Trial& trial : verdict.trials) {
        trials_.push_back(now_ - stands_since_);
        rounds_.push_back(trial.rounds);
        standstill_.thawed(trial.process, now_, now_ + 1ms);
        if (is_frozen_) wake(now_ + 300us);
        is_frozen_ = false;
      }
    }
  }
  // The same for as long as it takes to find out that it is frozen.
  void look_while_frozen() {
    is_frozen_ = true;
    look_for(5s);
  }
  void wake(Time at) {
    one_.woke = one_.shown = at;
    is_at_work_ = true;
  }
  void stand() {
    is_at_work_ = false;
    stands_since_ = one_.shown;
  }
  // At work for a while at first.
  void work_for(Nanos time) {
    wake(now_);
    look_for(time);
  }

  // It had one trial, and was at work after that, as if it had been frozen.
  void expect_no_report_of_one_trial() {
    EXPECT_THAT(trials_, SizeIs(1));
    EXPECT_EQ(found_, 0);
  }

  Time now_{100s};
  Standstill::Standing one_{.process = kOne, .came = now_};
  bool is_at_work_ = false, is_frozen_ = false;
  Time stands_since_{now_};
  Standstill standstill_;
  int found_ = 0;
  std::vector<Nanos> trials_;  // how long it had stood still
  std::vector<int> rounds_;
};

TEST_F(StandstillTest, WhoWorksOrIsHeldIsNotThawed) {
  work_for(60s);
  EXPECT_THAT(trials_, IsEmpty());
  stand();
  one_.is_held = true;
  look_for(60s);
  EXPECT_THAT(trials_, IsEmpty());
  one_.is_held = false;
  look_for(1s);
  EXPECT_THAT(trials_, IsEmpty()) << "it is let go just now";
}

TEST_F(StandstillTest, AnIdleProcessIsThawedLessAndLessOften) {
  work_for(20s);
  stand();
  look_for(10min);
  ASSERT_GE(trials_.size(), 10u);
  EXPECT_LE(trials_.size(), 15u);
  EXPECT_GE(trials_[0], Standstill::kStill);
  EXPECT_LE(trials_[0], Standstill::kStill + Standstill::kJitter + Standstill::kBetweenLooks);
  EXPECT_EQ(trials_.back() - trials_[trials_.size() - 2], Standstill::kLongestPause);
  EXPECT_THAT(std::vector<int>(rounds_.begin(), rounds_.begin() + 5),
              ElementsAre(4, 8, 16, 32, 32));
  EXPECT_EQ(found_, 0);
}

TEST_F(StandstillTest, WhoRunsAsSoonAsItIsThawedWasFrozen) {
  work_for(20s);
  stand();
  look_while_frozen();
  EXPECT_THAT(trials_, SizeIs(1));
  EXPECT_EQ(found_, 1);
  stand();
  look_while_frozen();
  EXPECT_EQ(found_, 2) << "again";
}

TEST_F(StandstillTest, WhoWasFoundIsThawedSoonerForAWhile) {
  work_for(20s);
  stand();
  look_while_frozen();
  ASSERT_EQ(found_, 1);
  for (int i = 0; i < 20; ++i) {  // frozen again at once
    stand();
    is_frozen_ = true;
    look_for(1s);
    EXPECT_LE(trials_.back(), 2 * Standstill::kBetweenLooks);
  }
  stand();
  look_for(10min);
  EXPECT_LE(trials_.size(), 45u) << "and no more often than others when it is idle";
}

TEST_F(StandstillTest, WhoWasFrozenBeforeTheAgentCameIsFound) {
  one_.was_there = true;
  look_while_frozen();
  EXPECT_EQ(found_, 1);
}

// It loads something, and wakes just when it is thawed.
TEST_F(StandstillTest, WhoStartsSlowlyIsNotReported) {
  look_while_frozen();
  expect_no_report_of_one_trial();
}

TEST_F(StandstillTest, WhoWakesLaterIsNotReported) {
  work_for(20s);
  stand();
  look_for(10s);
  wake(now_);
  look_for(1s);
  EXPECT_EQ(found_, 0);
}

// By chance it wakes just when it is thawed.
TEST_F(StandstillTest, WhoHasWokenByItselfIsFoundMuchLaterAndTheSecondTimeOnly) {
  work_for(20s);
  stand();
  look_for(10s);
  for (const Nanos time : {Nanos(20s), Standstill::kWakeful}) {
    work_for(time);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(found_, 0) << i;
      stand();
      look_while_frozen();
      EXPECT_TRUE(is_at_work_);
    }
    stand();
    look_for(10s);  // it wakes by itself again
  }
  EXPECT_EQ(found_, 1);
}

TEST_F(StandstillTest, WhoHasJustBegunIsNotBelieved) {
  work_for(1s);
  stand();
  look_while_frozen();
  expect_no_report_of_one_trial();
}

TEST_F(StandstillTest, WhoSaysThatItWaitsIsBelieved) {
  work_for(1s);
  stand();
  is_frozen_ = true;
  one_.waits = true;
  look_for(5s);
  EXPECT_EQ(found_, 1);
}

// Whatever its period is.
TEST_F(StandstillTest, WhoWorksNowAndThenIsNeverReported) {
  for (Nanos period = 1600ms; period < 4s; period += 7ms) {
    standstill_ = {};
    one_ = {.process = kOne, .came = now_};
    Time next = now_;
    for (const Time until = now_ + 100s; now_ < until; now_ += Standstill::kBetweenLooks) {
      for (; next <= now_; next += period) one_.woke = one_.shown = next;
      const Standstill::Verdict verdict = standstill_.look(now_, std::span(&one_, 1));
      EXPECT_THAT(verdict.found, IsEmpty()) << period.count();
      for (const Standstill::Trial& trial : verdict.trials)
        standstill_.thawed(trial.process, now_, now_ + 1ms);
    }
  }
}

TEST_F(StandstillTest, ManyIdleProcessesCostNoMoreAndWhoIsNewGoesFirst) {
  std::vector<Standstill::Standing> all;
  for (pid_t pid = 1; pid <= 1000; ++pid) all.push_back({.process = {pid, 1}, .came = now_});
  std::size_t trials = 0;
  const auto look = [&] {
    const auto verdict = standstill_.look(now_, all);
    trials += verdict.trials.size();
    now_ += Standstill::kBetweenLooks;
    return verdict;
  };
  for (int i = 0; i < 4 * 600; ++i) look();
  EXPECT_LE(trials, 8u * 600);
  EXPECT_GE(trials, 2000u);
  all.push_back({.process = kOne, .came = now_});
  bool has_had_its_trial = false;
  for (int i = 0; i < 4 * 5; ++i)
    for (const Standstill::Trial& trial : look().trials) has_had_its_trial |= trial.process == kOne;
  EXPECT_TRUE(has_had_its_trial);
}

}  // namespace
}  // namespace gpushare
