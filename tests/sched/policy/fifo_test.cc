// SPDX-License-Identifier: Apache-2.0
// `fifo` in virtual time: programs on a simulated GPU, alone with the policy, and in the whole
// agent less its event loop.
#include <gtest/gtest.h>

#include "tests/sched/policy/policy_rig.h"
#include "tests/sched/support/scheduler_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

TEST(Fifo, WhoCameFirstRunsAlone) {
  PolicyRig rig("fifo");
  for (int i = 0; i < 3; ++i) {
    rig.add({}).endless();
    rig.run_for(10ms);
  }
  rig.run_for(1s);
  rig.mark();
  rig.run_for(1s);
  EXPECT_GT(rig.percent_of_used(0), 99);
  EXPECT_EQ(rig.target(0), 1);
  for (const size_t waiting : {1, 2}) {
    EXPECT_TRUE(rig.is_frozen(waiting));
    EXPECT_EQ(rig.reason(waiting), "waits for process 100");
  }
}

TEST(Fifo, AProgramThatPausesKeepsItsTurnForItsPatience) {
  const auto policy = test::make_policy("fifo", {{"patience_ms", 500}});
  std::vector<ProcessView> processes(2);
  for (uint32_t id : {0U, 1U}) {
    processes[id].id = id;
    processes[id].process = {static_cast<pid_t>(100 + id), 1};
    processes[id].came = Time(1s + id * 1ms);
  }
  const auto is_frozen = [&](Nanos at) {
    const Plan plan = policy->plan({.now = Time(at), .processes = processes});
    EXPECT_EQ(plan.decisions[0].freeze, FreezeReason::kNone);
    return plan.decisions[1].freeze == FreezeReason::kTurn;
  };
  EXPECT_TRUE(is_frozen(2s));
  processes[0].wants_gpu = false;
  EXPECT_EQ(policy->plan({.now = Time(2400ms), .processes = processes}).next, Time(2500ms));
  EXPECT_TRUE(is_frozen(2499ms));
  EXPECT_FALSE(is_frozen(2500ms));
  processes[0].wants_gpu = true;
  EXPECT_TRUE(is_frozen(2600ms)) << "it is still the one that came first";
}

// Of a context that is alone the hardware says nothing: its pause is seen some seconds late.
TEST(Fifo, TheNextRunsWhenTheFirstHasNoMoreWork) {
  PolicyRig rig("fifo");
  rig.add({}).kernel(100ms);
  rig.run_for(1ms);
  rig.add({}).endless();
  rig.run_for(800ms);
  EXPECT_TRUE(rig.is_frozen(1));
  rig.run_for(10s);
  EXPECT_FALSE(rig.is_frozen(1));
}

TEST(FifoInTheAgent, TheNextRunsWhenTheFirstHasEndedAndStatusSaysWhy) {
  test::SchedulerRig rig;
  rig.start(true, "[gpu.0]\npolicy = 'fifo'\n");
  rig.add_busy("a", {});
  rig.run_for(200ms);
  rig.add_busy("b", {});
  rig.run_for(1s);
  const ProcessRecord waiting = rig.record(*rig.programs[1]);
  EXPECT_EQ(waiting.state, ProcessState::kFrozenTurn);
  EXPECT_STREQ(waiting.note, "waits for process 100");
  EXPECT_EQ(rig.measure(1s)[1], 0);
  rig.machine.model.close_client(rig.programs[0]->client);
  rig.run_for(200ms);
  EXPECT_GT(rig.measure(1s)[1], 0.99);
  EXPECT_STREQ(rig.record(*rig.programs[1]).note, "");
}

TEST(FifoInTheAgent, TheUsersFreezeHoldsAlthoughThePolicyKnowsNothingOfIt) {
  test::SchedulerRig rig;
  rig.start(true, "[gpu.0]\npolicy = 'fifo'\n");
  rig.add_busy("a", {});
  rig.add_busy("b", {});
  rig.run_for(500ms);
  ASSERT_TRUE(rig.tenants.set_frozen("a", true));
  rig.run_for(500ms);
  EXPECT_EQ(rig.record(*rig.programs[0]).state, ProcessState::kFrozenUser);
  const auto shares = rig.measure(1s);
  EXPECT_EQ(shares[0], 0);
  EXPECT_GT(shares[1], 0.99);
}

TEST(FifoInTheAgent, AReloadChangesThePolicyOfOneGpuWhileProgramsRun) {
  test::SchedulerRig rig(2);
  rig.start(true, "[gpu.0]\npolicy = 'fifo'\n");
  for (const uint32_t gpu : {0U, 0U, 1U, 1U}) {
    rig.add_busy("t" + std::to_string(rig.programs.size()), {}, gpu);
    rig.run_for(150ms);
  }
  rig.run_for(1s);
  auto shares = rig.measure(1s);
  EXPECT_GT(shares[0], 0.99);
  EXPECT_NEAR(shares[2] / (shares[2] + shares[3]), 0.5, 0.02) << "the other GPU is fair";
  rig.scheduler->configure(test::parse("").value());
  rig.run_for(1s);
  shares = rig.measure(1s);
  EXPECT_NEAR(shares[0] / (shares[0] + shares[1]), 0.5, 0.02);
}

}  // namespace
}  // namespace gpushare
