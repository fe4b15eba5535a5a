// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/steps.h"

#include <gtest/gtest.h>

#include "sched/spatial/slot_reading.h"
#include "tests/sched/support/slo_programs.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using State = ProfileSteps::State;

class ProfileStepsTest : public ::testing::Test {
 protected:
  // Looks every half millisecond until the condition holds, or until the limit is over.
  State run(ProfileSteps& steps, Nanos at_most) {
    State state = State::kWarmingUp;
    for (const Time end = now_ + at_most; now_ < end;) {
      now_ += 500us;
      program_.slot->gpus[0].wanted = (1U << steps.groups()) - 1;
      if (now_ >= moves_at_) program_.run_until(now_);
      const bool is_there = program_.slot->gpus[0].applied == program_.slot->gpus[0].wanted;
      const ProcessView seen{.process = program_.id,
                             .iterations = read_slot(*program_.slot).iterations};
      state = steps.look(now_, is_there, std::span(&seen, 1));
      if (state != State::kWarmingUp && state != State::kMeasuring) return state;
    }
    return state;
  }

  Time now_{1s}, moves_at_{};
  SloProgram program_{7, 1, WorldTenant{.shape = {}, .full_speed = 0.002}};  // 30 ms / groups
};

TEST_F(ProfileStepsTest, MeasuresEveryStepOfOneRun) {
  ProfileSteps steps({15, 6, 1}, {.iterations = 20}, now_);
  ASSERT_EQ(run(steps, 60s), State::kDone);
  ASSERT_EQ(steps.points().size(), 3u);
  EXPECT_EQ(steps.points()[0].groups, 1u) << "by groups";
  EXPECT_NEAR(steps.points()[0].mean_us, 30'000, 1);
  EXPECT_NEAR(steps.points()[1].mean_us, 5'000, 1);
  EXPECT_NEAR(steps.points()[2].mean_us, 2'000, 1);
  for (const SweepPoint& point : steps.points()) {
    EXPECT_GE(point.iterations, 20u);
    EXPECT_LE(point.iterations, 21u);
    EXPECT_NEAR(point.p99_us, point.mean_us, 1);
  }
}

TEST_F(ProfileStepsTest, TheP99IsThatOfTheSlowOnes) {
  ProfileSteps steps({10}, {.iterations = 100}, now_);
  int until_slow = 40;
  State state = State::kMeasuring;
  while (state != State::kDone) {
    const uint64_t before = program_.slot->iterations.ended;
    state = run(steps, 500us);
    if (program_.slot->iterations.ended == before) continue;
    program_.set_full_speed(--until_slow % 40 == 0 ? 0.020 : 0.002);
  }
  EXPECT_NEAR(steps.points()[0].p99_us, 30'000, 10);
  EXPECT_LT(steps.points()[0].mean_us, 5'000);
}

TEST_F(ProfileStepsTest, AStepThatTakesTooLongCountsWhatThereIsOrIsLeftOut) {
  program_.set_full_speed(0.060);
  ProfileSteps steps({15, 6, 1}, {.iterations = 50, .longest = 1s}, now_);
  ASSERT_EQ(run(steps, 60s), State::kDone);
  ASSERT_EQ(steps.points().size(), 2u) << "900 ms for one on one group";
  EXPECT_EQ(steps.points()[0].groups, 6u);
  EXPECT_GE(steps.points()[1].iterations, 14u);
}

TEST_F(ProfileStepsTest, WithoutIterationsItGivesUp) {
  program_.is_stuck = true;
  ProfileSteps steps({15}, {.patience = 5s}, now_);
  EXPECT_EQ(run(steps, 4s), State::kWarmingUp);
  EXPECT_EQ(run(steps, 2s), State::kSilent);
}

TEST_F(ProfileStepsTest, AProgramThatDoesNotMoveIsNotWaitedForForEver) {
  ProfileSteps steps({15, 1}, {.iterations = 20, .patience = 5s}, now_);
  while (steps.step() == 0) run(steps, 500us);
  moves_at_ = Time::max();
  EXPECT_EQ(run(steps, 10s), State::kStuck);
  EXPECT_EQ(steps.points().size(), 1u) << "what there was stays";
}

TEST_F(ProfileStepsTest, WhoStartsSlowlyIsWaitedFor) {
  moves_at_ = now_ + 30s;
  ProfileSteps steps({15}, {.iterations = 20}, now_);
  EXPECT_EQ(run(steps, 60s), State::kDone);
}

}  // namespace
}  // namespace gpushare
