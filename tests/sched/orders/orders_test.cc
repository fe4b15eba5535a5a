// SPDX-License-Identifier: Apache-2.0
// The policies that order jobs, one decision after the other in virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/sched/replay/machine.h"
#include "sched/orders/left.h"
#include "sched/orders/srtf.h"
#include "tests/sched/orders/order_world.h"

namespace gpushare {
namespace {

using test::OrderWorld;
using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<Policy> make_policy(std::string_view name, const replay::Options& options = {}) {
  static const LengthHistory kNothingLearnt;
  return replay::policy_named(name, options).value()(kNothingLearnt);
}

class EveryOrder : public testing::TestWithParam<const char*> {
 protected:
  OrderWorld world(const replay::Options& options = {}) {
    return OrderWorld(make_policy(GetParam(), options));
  }
};
INSTANTIATE_TEST_SUITE_P(All, EveryOrder, testing::Values("fifo", "srtf", "turns"));

TEST_P(EveryOrder, NamesEveryJobOnceAndLetsOneRun) {
  OrderWorld world = this->world();
  for (int i = 0; i < 5; ++i) world.add(10s);
  const Plan& plan = world.decide();
  EXPECT_THAT(test::order_of(plan), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(std::ranges::count(plan.jobs, true, &JobDecision::runs), 1);
  EXPECT_TRUE(plan.jobs.front().runs);
  EXPECT_EQ(plan.jobs[1].reason, "turn of job, 10 s left");
}

TEST_P(EveryOrder, SaysNothingWhereThereAreNoJobs) {
  OrderWorld world = this->world();
  EXPECT_TRUE(world.decide().jobs.empty());
  EXPECT_EQ(world.plan.next, Time::max());
}

TEST_P(EveryOrder, AHigherClassGoesBeforeTheOrder) {
  OrderWorld world = this->world();
  world.add(1s);
  world.run_for(50ms);
  world.add(100s).priority = Priority::kHigh;
  world.add(500ms).priority = Priority::kIdle;
  world.run_for(50ms);
  EXPECT_EQ(world.running(), 2);
  EXPECT_THAT(test::order_of(world.decide()), ElementsAre(2, 1, 3));
}

TEST_P(EveryOrder, WhoWantsNothingLendsItsTurnAndGetsItBack) {
  OrderWorld world = this->world();
  world.add(1s);
  world.add(90s);
  world.run_for(20ms);
  ASSERT_EQ(world.running(), 1);
  world.job(1).wants_gpu = false;
  world.run_for(40ms);
  EXPECT_EQ(world.running(), 2);
  EXPECT_EQ(world.plan.jobs[1].reason, "has no work");
  world.job(1).wants_gpu = true;
  const Nanos had = world.job(1).service;
  world.run_for(60ms);
  EXPECT_GE(world.job(1).service, had + 20ms);
}

TEST_P(EveryOrder, WhoHasTheTurnKeepsItWhileNobodyWantsTheGpu) {
  OrderWorld world = this->world();
  world.add(9s);
  world.add(1s);
  world.job(2).wants_gpu = false;
  world.run_for(50ms);
  world.job(1).wants_gpu = false;
  world.run_for(50ms);
  EXPECT_EQ(world.running(), 1);
}

TEST_P(EveryOrder, PatienceGivesOneTurnInWhateverOrder) {
  // 1 would run for ever: it is the first, has the least left by its own word, or weighs the most.
  OrderWorld world = this->world({{"patience_s", 10}, {"turn_ms", 100}});
  world.add(1h).weight = 10'000;
  world.add(20h).weight = 1;
  world.job(1).left = 1h;
  Nanos had{};
  world.run_for(9s);
  if (std::string_view(GetParam()) != "turns") EXPECT_EQ(world.job(2).service, had);
  world.run_for(2s);
  EXPECT_GE(world.job(2).service, 100ms);
  EXPECT_LE(world.job(2).service, 300ms);
  had = world.job(2).service;
  world.run_for(12s);
  EXPECT_GE(world.job(2).service, had + 100ms) << "and again";
  EXPECT_EQ(world.running(), 1);
}

TEST_P(EveryOrder, PatienceDoesNotGoBeforeTheClass) {
  OrderWorld world = this->world({{"patience_s", 1}});
  world.add(1h);
  world.add(1h).priority = Priority::kIdle;
  world.run_for(5s);
  EXPECT_EQ(world.job(2).service, 0s);
}

TEST_P(EveryOrder, AJobThatNeverComesToABoundaryIsGivenItsGrace) {
  OrderWorld world = this->world({{"grace_ms", 300}});
  world.add(1h);
  EXPECT_EQ(world.decide().jobs[0].grace, 300ms);
  OrderWorld by_itself = this->world();
  by_itself.add(1h, 100ms);
  by_itself.add(1h, 1ms);
  by_itself.add(1h, 10s);
  by_itself.decide();
  EXPECT_EQ(by_itself.plan.jobs[0].grace, 200ms) << "twice its iteration";
  EXPECT_EQ(by_itself.plan.jobs[1].grace, 20ms);
  EXPECT_EQ(by_itself.plan.jobs[2].grace, 1s);
}

// A tenant's overdrawn bucket stops its processes; a job that cannot run lends its turn.
TEST_P(EveryOrder, AnOverdrawnCapStopsAJobAndTheNextOneRuns) {
  OrderWorld world = this->world();
  world.add(1s);
  world.add(1s);
  for (uint32_t id : {0U, 1U}) {
    world.tenants.push_back({.id = id});
    world.processes.push_back(
        {.id = id, .process = {static_cast<pid_t>(100 + id), 1}, .tenant = id, .job = id + 1});
  }
  world.decide();
  ASSERT_EQ(test::job_with_turn(world.plan), 1);
  world.tenants[0].cap = CapView{.fraction = 0.5, .burst = 50ms, .tokens = -10ms};
  world.decide();
  EXPECT_EQ(test::job_with_turn(world.plan), 2);
  EXPECT_EQ(world.plan.decisions[0].freeze, FreezeReason::kCap);
  EXPECT_EQ(world.plan.decisions[1].freeze, FreezeReason::kNone);
  EXPECT_LE(world.plan.next, world.now + 100ms) << "the bucket is looked at again";
  world.tenants[0].cap->tokens = 40ms;
  world.decide();
  EXPECT_EQ(world.plan.decisions[0].freeze, FreezeReason::kNone);
}

TEST_P(EveryOrder, MendsTheSlicesThatFairHasCutForBestEffortWork) {
  OrderWorld world = this->world();
  world.tenants.push_back({.id = 0});
  world.processes.push_back({.id = 3, .slice = Micros(1), .job = 1});
  world.add(1s);
  EXPECT_EQ(world.decide().decisions[0].slice, 2048us);
}

// --- fifo

TEST(Fifo, TheFirstRunsUntilItEnds) {
  OrderWorld world(make_policy("fifo"));
  for (const Nanos left : {3s, 1s, 2s}) world.add(left);
  world.run_for(7s);
  EXPECT_THAT(world.ended, ElementsAre(1, 2, 3));
}

// --- srtf

TEST(Srtf, TheShortestIsThroughFirst) {
  OrderWorld world(make_policy("srtf"));
  for (const Nanos left : {3s, 1s, 2s}) world.add(left);
  world.run_for(7s);
  EXPECT_THAT(world.ended, ElementsAre(2, 3, 1));
}

TEST(Srtf, AShorterOneReplacesTheRunningOneAtItsBoundary) {
  OrderWorld world(make_policy("srtf"));
  world.add(10s, 100ms);
  world.run_for(130ms);
  world.add(1s);
  world.run_for(50ms);
  EXPECT_EQ(world.running(), 1) << "in the middle of an iteration";
  world.run_for(50ms);
  EXPECT_EQ(world.running(), 2);
}

TEST(Srtf, ReplacesOnlyForMoreThanAnIterationAndTenSwitches) {
  OrderWorld world(make_policy("srtf"));
  world.add(1s, 100ms);
  world.decide();
  world.add(901ms);
  world.run_for(5ms);
  EXPECT_EQ(world.running(), 1);
  world.add(880ms);
  world.run_for(100ms);
  EXPECT_EQ(world.running(), 3);
  OrderWorld quick(make_policy("srtf"));
  quick.add(1s, 1ms);
  quick.decide();
  quick.add(996ms);
  EXPECT_EQ(test::job_with_turn(quick.decide()), 1);
  quick.add(994ms);
  EXPECT_EQ(test::job_with_turn(quick.decide()), 3);
}

TEST(Srtf, OfUnknownLengthTheOneThatRanTheShortestTimeGoesFirst) {
  OrderWorld world(make_policy("srtf"));
  world.add();
  world.run_for(16s);  // beyond the shortest of the imagined lengths
  world.add();
  world.run_for(100ms);
  EXPECT_EQ(world.running(), 2);
}

TEST(Srtf, LooksAgainWhenTheKeyOfTheRunningOneJumps) {
  OrderWorld world(make_policy("srtf"));
  world.add().service = 1s;
  world.add();
  world.decide();
  world.decide();
  const Nanos wait = world.plan.next - world.now;
  EXPECT_GT(wait, 0s);
  EXPECT_LT(wait, 20s);
}

TEST(Srtf, AKnownLongOneGoesBehindUnknownOnesThatAreLikelyShort) {
  LengthHistory history;
  for (int i = 0; i < 100; ++i) history.add("", 1s);
  SrtfPolicy policy(PolicyOptions(kOrderOptions), &history);
  std::vector<JobView> jobs = {test::waiting_job(1, Time(1h), 1min),
                               test::waiting_job(2, Time(2h))};
  EXPECT_EQ(test::job_with_turn(policy.plan({.now = Time(3h), .jobs = jobs})), 2);
}

// What is not known of a job is its own work: whose start happened to take long, beside others that
// started, is not further than they are.
TEST(Srtf, TheStartOfAnUnknownJobDoesNotCount) {
  LengthHistory history;
  for (int i = 0; i < 100; ++i) history.add("", 1s);
  SrtfPolicy policy(PolicyOptions(kOrderOptions), &history);
  std::vector<JobView> jobs = {test::waiting_job(1, Time(2h)), test::waiting_job(2, Time(1h))};
  jobs[0].service = 2500ms;
  jobs[0].start = 1900ms;
  jobs[1].service = 300ms;
  EXPECT_EQ(test::job_with_turn(policy.plan({.now = Time(3h), .jobs = jobs})), 1);
}

// A job that says that it takes a microsecond.
class Liar {
 public:
  Liar() { world.add(); }
  // Keeps to its word: what is left is what it said, less what it has had.
  void run_for(Nanos time) {
    for (const Time end = world.now + time; world.now < end;) {
      world.job(1).left = left_of({.length = 1us, .service = world.job(1).service}).time;
      world.run_for(5ms);
    }
  }
  OrderWorld world{make_policy("srtf")};
};

TEST(Srtf, AFalseWordWinsNoMoreThanWhatAStartMayTake) {
  Liar liar;
  liar.world.add(1s);
  liar.run_for(3100ms);
  EXPECT_THAT(liar.world.ended, ElementsAre(2));
  EXPECT_LE(liar.world.job(1).service, 2100ms + 15ms);
}

TEST(Srtf, WhoSaidAMicrosecondAndRunsForAnHourLosesItsPlace) {
  Liar liar;
  liar.run_for(1min);
  EXPECT_GE(liar.world.job(1).service, 1min - 1s) << "it was alone";
  liar.world.job(1).service += 59min;
  const Nanos had = liar.world.job(1).service;
  liar.world.add(10min);
  liar.world.add();  // of unknown length
  liar.run_for(2min);
  EXPECT_LE(liar.world.job(1).service, had + 10ms) << "both go before it";
}

// --- turns

TEST(Turns, EqualJobsGetEqualService) {
  OrderWorld world(make_policy("turns", {{"turn_ms", 50}}));
  for (int i = 0; i < 4; ++i) world.add();
  Nanos most{};
  for (int step = 0; step < 2000; ++step) {
    world.decide();
    world.run(5ms);
    const auto [least, greatest] = std::ranges::minmax(world.jobs, {}, &JobView::service);
    most = std::max(most, greatest.service - least.service);
  }
  EXPECT_LE(most, 50ms + 10ms) << "one turn and the longest iteration";
  EXPECT_GE(world.job(4).service, 2400ms);
}

TEST(Turns, ServiceFollowsTheWeights) {
  OrderWorld world(make_policy("turns"));
  world.add().weight = 100;
  world.add().weight = 300;
  world.run_for(20s);
  EXPECT_NEAR(world.job(2).service / 1ms, 15000, 50);
}

TEST(Turns, ANewcomerGetsNoMoreThanTheOthersFromThenOn) {
  OrderWorld world(make_policy("turns"));
  world.add();
  world.run_for(30s);
  world.add();
  world.run_for(10s);
  EXPECT_NEAR(world.job(2).service / 1ms, 5000, 50);
}

// Neither has it the GPU alone for as long as the others have had, nor does it wait for as long.
TEST(Turns, OneThatComesToAnotherClassBeginsLevelWithTheOthersThere) {
  OrderWorld world(make_policy("turns"));
  for (int i = 0; i < 3; ++i) world.add();
  world.run_for(60s);
  world.add().priority = Priority::kHigh;
  world.run_for(1s);
  world.job(4).priority = Priority::kNormal;
  std::vector<Nanos> had;
  for (const JobView& job : world.jobs) had.push_back(job.service);
  world.run_for(8s);
  for (uint64_t id = 1; id <= 4; ++id)
    EXPECT_NEAR((world.job(id).service - had[id - 1]) / 1ms, 2000, 50) << id;
  world.add().priority = Priority::kHigh;
  world.run_for(1s);
  world.job(1).priority = Priority::kHigh;
  had = {world.job(1).service, world.job(5).service};
  world.run_for(8s);
  EXPECT_NEAR((world.job(1).service - had[0]) / 1ms, 4000, 50);
  EXPECT_NEAR((world.job(5).service - had[1]) / 1ms, 4000, 50);
}

TEST(Turns, NobodySavesUpTurnsWhileItWantsNothing) {
  OrderWorld world(make_policy("turns"));
  world.add();
  world.add();
  world.run_for(1s);
  world.job(2).wants_gpu = false;
  world.run_for(30s);
  world.job(2).wants_gpu = true;
  const Nanos had = world.job(1).service;
  world.run_for(10s);
  EXPECT_NEAR((world.job(1).service - had) / 1ms, 5000, 50);
}

// One kernel that runs for long launches nothing, so it is not known to want the GPU that it has.
TEST(Turns, WhatOneHadAloneWithoutBeingSeenToWantItIsNotHeldAgainstIt) {
  OrderWorld world(make_policy("turns"));
  world.add().wants_gpu = false;
  for (int i = 0; i < 100; ++i) {
    world.job(1).service += 300ms;
    world.run_for(5ms);
  }
  world.job(1).wants_gpu = true;
  world.add();
  const Nanos had = world.job(1).service;
  world.run_for(10s);
  EXPECT_NEAR((world.job(1).service - had) / 1ms, 5000, 50);
}

// It was stopped in a wait, and looks as if it wanted the GPU.
TEST(Turns, OneThatMakesNoUseOfItsTurnPaysForItAllTheSame) {
  OrderWorld world(make_policy("turns"));
  world.add();
  world.add();
  world.run_for(1s);
  const Nanos had = world.job(1).service, other_had = world.job(2).service;
  for (const Time end = world.now + 10s; world.now < end;) {
    world.run_for(5ms);
    world.job(1).service = had;
    world.job(1).is_at_boundary = true;
  }
  EXPECT_NEAR((world.job(2).service - other_had) / 1ms, 5000, 100);
}

TEST(Turns, ATurnThatWasTooLongCostsTheOthersNoWholeTurnMore) {
  const std::unique_ptr<Policy> policy = make_policy("turns", {{"turn_ms", 100}});
  std::vector<JobView> jobs = {test::waiting_job(1, Time(1h)), test::waiting_job(2, Time(1h))};
  const auto plan = [&](Nanos at) { return policy->plan({.now = Time(1h) + at, .jobs = jobs}); };
  plan(0s);
  jobs[0].runs = true;
  plan(1ms);
  jobs[0].service = 124ms;
  EXPECT_EQ(test::job_with_turn(plan(124ms)), 2);
  jobs[0].runs = false;
  jobs[1].service = 100ms;
  jobs[1].runs = true;
  jobs[1].since = Time(1h) + 124ms;
  const Plan after = plan(224ms);
  EXPECT_EQ(test::job_with_turn(after), 2);
  EXPECT_EQ(after.next, Time(1h) + 248ms);
}

TEST(Turns, ATurnIsAtLeastOneIteration) {
  OrderWorld world(make_policy("turns", {{"turn_ms", 1}, {"grace_ms", 1000}}));
  world.add({}, 200ms);
  world.add({}, 200ms);
  world.run_for(2s);
  EXPECT_EQ(world.job(1).service % 200ms, 0s);
  EXPECT_NEAR(world.job(1).service / 1ms, 1000, 200);
}

}  // namespace
}  // namespace gpushare
