// SPDX-License-Identifier: Apache-2.0
// A whole agent gives turns to programs without the shim on the simulated GPU, in virtual time: all
// of it by freezes.
#include <gtest/gtest.h>

#include "tests/sched/orders/jobs.h"
#include "tests/sched/support/scheduler_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::SchedulerRig;

class TurnTakingTest : public ::testing::Test {
 protected:
  TurnTakingTest() {
    rig_.policies.push_back(
        test::ScriptedPolicy::entry("scripted", [this](const Snapshot& snapshot) {
          last_jobs_.assign(snapshot.jobs.begin(), snapshot.jobs.end());
          Plan plan = test::plan_turn_of(snapshot, choose_(snapshot));
          if (!names_jobs_) plan.jobs.clear();
          plan.next = snapshot.now + 2ms;
          return plan;
        }));
  }
  void start(uint32_t gpus = 1) {
    std::string config;
    for (uint32_t gpu = 0; gpu < gpus; ++gpu)
      config += "[gpu." + std::to_string(gpu) + "]\npolicy = 'scripted'\n";
    rig_.start(true, config);
  }
  // With a busy program each of the tenants "a" and "b", for a second.
  void start_two() {
    start();
    rig_.add_busy("a", {});
    rig_.add_busy("b", {});
    rig_.run_for(1s);
  }
  // In turns of `length` each.
  void alternate(Nanos length) {
    choose_ = [length](const Snapshot& snapshot) {
      const auto turn = static_cast<uint64_t>(snapshot.now.time_since_epoch() / length);
      return snapshot.jobs.empty() ? 0 : snapshot.jobs[turn % snapshot.jobs.size()].id;
    };
  }

  SchedulerRig rig_;
  std::function<uint64_t(const Snapshot&)> choose_ = [](const Snapshot&) { return uint64_t{1}; };
  bool names_jobs_ = true;          // false: everybody runs as it likes
  std::vector<JobView> last_jobs_;  // without what was valid during the call only
};

TEST_F(TurnTakingTest, WhatIsLeftIsWhatWasSaidOfATenantLessWhatItsJobHasReceived) {
  start();
  rig_.add_busy("said", {{"length_us", "3000000"}});
  rig_.add_busy("unknown", {});
  rig_.run_for(1s);
  const ProcessRecord said = rig_.record(*rig_.programs[0]);
  EXPECT_EQ(said.job_left_by, static_cast<uint32_t>(LeftSource::kSaid));
  // Until it is seen that they do not just start, both run.
  EXPECT_NEAR(static_cast<double>(said.job_left_us), 2e6, 0.1e6);
  const double received_us = static_cast<double>(said.job_service_ns) / 1000;
  EXPECT_NEAR(static_cast<double>(said.job_left_us) + received_us, 3e6, 0.02e6);
  EXPECT_EQ(rig_.record(*rig_.programs[1]).job_left_us, kUnknown64);
  ASSERT_EQ(last_jobs_.size(), 2U);
  EXPECT_EQ(last_jobs_[0].left_source, LeftSource::kSaid);
  EXPECT_EQ(last_jobs_[1].left, std::nullopt);
  rig_.run_for(4500ms);
  EXPECT_EQ(rig_.record(*rig_.programs[0]).job_left_us, kUnknown64) << "it was more than was said";
}

// As of its context, which it makes before it is first held.
TEST_F(TurnTakingTest, WhatAJobHadBeforeItsFirstTurnIsNoPartOfALengthThatWasSaid) {
  names_jobs_ = false;
  start();
  rig_.add_busy("said", {{"length_us", "3000000"}});
  rig_.run_for(1s);
  EXPECT_NEAR(static_cast<double>(rig_.record(*rig_.programs[0]).job_left_us), 3e6, 0.1e6);
  names_jobs_ = true;
  rig_.run_for(500ms);
  EXPECT_NEAR(static_cast<double>(rig_.record(*rig_.programs[0]).job_left_us), 2.5e6, 0.1e6);
  rig_.run_for(500ms);
  EXPECT_NEAR(static_cast<double>(rig_.record(*rig_.programs[0]).job_left_us), 2e6, 0.1e6);
}

// The program that is known to be through soonest goes first, and has the GPU until it has ended.
TEST_F(TurnTakingTest, UnderSrtfTheShorterOneGoesFirst) {
  rig_.start(true, "[gpu.0]\npolicy = 'srtf'\n");
  rig_.add_busy("long", {{"length_us", "60000000"}});
  rig_.run_for(200ms);
  rig_.add_busy("short", {{"length_us", "5000000"}});
  rig_.run_for(1s);
  const auto shares = rig_.measure(1s);
  EXPECT_LT(shares[0], 0.01);
  EXPECT_GT(shares[1], 0.98);
}

TEST_F(TurnTakingTest, OneRunsAndTheOtherStandsUntilItsTurnComes) {
  start_two();
  auto shares = rig_.measure(1s);
  EXPECT_GT(shares[0], 0.99);
  EXPECT_LT(shares[1], 0.001);
  EXPECT_EQ(rig_.record(*rig_.programs[1]).state, ProcessState::kFrozenTurn);
  EXPECT_EQ(rig_.record(*rig_.programs[1]).turn, TurnState::kStopped);
  EXPECT_EQ(std::string(rig_.record(*rig_.programs[1]).note), "turn of 1");
  EXPECT_EQ(rig_.record(*rig_.programs[0]).turn, TurnState::kRunning);
  choose_ = [](const Snapshot&) { return uint64_t{2}; };
  rig_.run_for(10ms);
  shares = rig_.measure(1s);
  EXPECT_GT(shares[1], 0.99);
  EXPECT_LT(shares[0], 0.001);
}

TEST_F(TurnTakingTest, TurnsOfAQuarterOfASecondCostLittle) {
  start();
  rig_.add_busy("a", {});
  rig_.add_busy("b", {});
  alternate(250ms);
  rig_.run_for(1s);
  const auto shares = rig_.measure(5s);
  EXPECT_NEAR(shares[0], 0.5, 0.02);
  EXPECT_NEAR(shares[1], 0.5, 0.02);
  EXPECT_GT(shares[0] + shares[1], 0.98);
}

TEST_F(TurnTakingTest, TurnsAreCountedAndWhoWaitsWasHeld) {
  start_two();  // the first has the turn
  EXPECT_EQ(rig_.tenant("a").turns, 1U);
  EXPECT_EQ(rig_.tenant("b").turns, 0U);
  EXPECT_EQ(rig_.tenant("a").held_ns, 0U);
  EXPECT_NEAR(static_cast<double>(rig_.tenant("b").held_ns), 1e9, 0.1e9);
  alternate(250ms);
  rig_.run_for(5s);
  EXPECT_NEAR(static_cast<double>(rig_.tenant("a").turns), 11, 1);
  EXPECT_NEAR(static_cast<double>(rig_.tenant("b").turns), 10, 1);
  EXPECT_NEAR(static_cast<double>(rig_.tenant("a").held_ns), 2.5e9, 0.2e9);
  EXPECT_EQ(rig_.tenant("a").throttled_ns, 0U) << "it has no cap";
  rig_.add("idle", {});
  rig_.run_for(2s);
  const uint64_t held = rig_.tenant("idle").held_ns;
  rig_.run_for(2s);
  EXPECT_EQ(rig_.tenant("idle").held_ns, held) << "who wants nothing waits for nothing";
}

TEST_F(TurnTakingTest, TurnsAreCountedOnWhenAJobComesBack) {
  start_two();
  alternate(250ms);
  rig_.run_for(5s);
  const uint64_t before = rig_.tenant("a").turns;
  ASSERT_GT(before, 5U);
  names_jobs_ = false;  // everybody runs as it likes
  rig_.run_for(1s);
  EXPECT_EQ(rig_.tenant("a").turns, before);
  names_jobs_ = true;
  rig_.run_for(1s);
  EXPECT_GT(rig_.tenant("a").turns, before);
  EXPECT_LE(rig_.tenant("a").turns, before + 3);
}

TEST_F(TurnTakingTest, NobodyIsHeldOnceNoPolicyOrdersJobs) {
  start_two();
  const uint64_t turns = rig_.tenant("a").turns;
  rig_.scheduler->configure(test::parse("").value());
  rig_.run_for(1s);
  const uint64_t held = rig_.tenant("b").held_ns;
  rig_.run_for(1s);
  EXPECT_EQ(rig_.tenant("b").held_ns, held);
  EXPECT_EQ(rig_.tenant("a").turns, turns);
}

// Two jobs of one tenant wait for the same second.
TEST_F(TurnTakingTest, OfATenantTimePassesOnce) {
  start();
  rig_.add_busy("a", {});
  rig_.add_busy("b", {});
  rig_.add_busy("b", {});
  rig_.run_for(2s);
  EXPECT_NEAR(static_cast<double>(rig_.tenant("b").held_ns), 2e9, 0.2e9);
}

// What the next agent counts goes on from what this one published.
TEST_F(TurnTakingTest, TurnsAreCountedOnByTheNextAgent) {
  start_two();
  alternate(250ms);
  rig_.run_for(2s);
  const TenantRecord before = rig_.tenant("a");
  ASSERT_GE(before.turns, 3U);
  rig_.kill();
  start();
  rig_.run_for(1s);
  EXPECT_GE(rig_.tenant("a").turns, before.turns);
  EXPECT_LE(rig_.tenant("a").turns, before.turns + 3);
  EXPECT_GE(rig_.tenant("a").held_ns, before.held_ns);
}

TEST_F(TurnTakingTest, WhatARunStartedIsOneJobAndItsServiceIsKnown) {
  start();
  rig_.add_busy("a", {});
  rig_.add_busy("a", {});
  rig_.add_busy("b", {});
  ASSERT_TRUE(rig_.tenants.begin_run(rig_.programs[0]->process, Time{1s}));
  ASSERT_TRUE(rig_.tenants.begin_run(rig_.programs[2]->process, Time{2s}));
  rig_.run_for(2s);
  ASSERT_EQ(last_jobs_.size(), 3u);
  EXPECT_EQ(last_jobs_[0].arrived, Time{1s});
  EXPECT_GT(last_jobs_[0].service, 1s);
  EXPECT_TRUE(last_jobs_[0].runs);
  EXPECT_FALSE(last_jobs_[1].runs);
  EXPECT_TRUE(last_jobs_[1].wants_gpu);
  EXPECT_EQ(rig_.record(*rig_.programs[0]).run, 100u);
}

TEST_F(TurnTakingTest, WhoDiesWhileItHasTheTurnKeepsNobodyWaiting) {
  start_two();
  choose_ = [](const Snapshot& snapshot) {
    return snapshot.jobs.empty() ? 0 : snapshot.jobs.front().id;
  };
  rig_.machine.model.close_client(rig_.programs[0]->client);
  rig_.work[0] = 0;
  rig_.run_for(50ms);
  EXPECT_GT(rig_.measure(1s)[1], 0.99);
}

TEST_F(TurnTakingTest, AnotherPolicyLetsAllGo) {
  start_two();
  rig_.scheduler->configure(test::parse("").value());
  rig_.run_for(1s);
  const auto shares = rig_.measure(1s);
  EXPECT_NEAR(shares[0], 0.5, 0.05);
  EXPECT_EQ(rig_.record(*rig_.programs[1]).turn, TurnState::kFree);
  EXPECT_EQ(rig_.record(*rig_.programs[1]).job, 0u);
}

TEST_F(TurnTakingTest, WhoIsFrozenByTheUserLosesItsTurnAndStaysFrozen) {
  start_two();
  ASSERT_TRUE(rig_.tenants.set_frozen("a", true));
  rig_.run_for(50ms);
  const auto shares = rig_.measure(1s);
  EXPECT_LT(shares[0], 0.001);
  EXPECT_GT(shares[1], 0.99) << "it borrows the turn";
  ASSERT_TRUE(rig_.tenants.set_frozen("a", false));
  rig_.run_for(50ms);
  EXPECT_GT(rig_.measure(1s)[0], 0.99);
}

TEST_F(TurnTakingTest, AnAgentThatDiedLeavesNobodyHeld) {
  start_two();
  rig_.kill();
  EXPECT_GT(rig_.ledger_entries(), 0u);
  (void)recover(rig_.gpu, *rig_.region, rig_.processes);
  const auto shares = rig_.measure(1s);
  EXPECT_GT(shares[1], 0.4);
}

}  // namespace
}  // namespace gpushare
