// SPDX-License-Identifier: Apache-2.0
// What users are promised of shares, caps and classes, on a simulated GPU in virtual time.
#include "sched/step/scheduler.h"

#include <gtest/gtest.h>

#include "tests/sched/support/scheduler_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::kPoint;
using test::SchedulerRig;

TEST(SchedulerShares, WeightsHold) {
  SchedulerRig rig;
  rig.run_busy({{"a", {{"weight", "300"}}}, {"b", {{"weight", "100"}}}}, 2s);
  const auto shares = rig.measure(3s);
  const double sum = shares[0] + shares[1];
  EXPECT_NEAR(shares[0] / sum, 0.75, kPoint);
  EXPECT_GT(sum, 0.90);
  const ProcessRecord record = rig.record(*rig.programs[0]);
  EXPECT_EQ(record.target_permille, 750u);
  EXPECT_NEAR(record.share_permille, shares[0] * 1000, 10);
  EXPECT_EQ(record.state, ProcessState::kRunning);
}

TEST(SchedulerShares, AChangeOfWeightsTakesEffectWhileProgramsRun) {
  SchedulerRig rig;
  rig.run_busy({{"a", {{"weight", "100"}}}, {"b", {{"weight", "100"}}}}, 1s);
  const std::vector<Setting> heavier{{"weight", "400"}};
  ASSERT_TRUE(rig.tenants.set("b", heavier, false));
  rig.run_for(2s);
  const auto shares = rig.measure(2s);
  EXPECT_NEAR(shares[1] / (shares[0] + shares[1]), 0.8, kPoint);
}

TEST(SchedulerShares, ACapHoldsAloneAndBesideAnother) {
  SchedulerRig rig;
  rig.run_busy({{"capped", {{"max", "30%"}}}}, 1s);
  EXPECT_NEAR(rig.measure(3s)[0], 0.30, kPoint);
  rig.add_busy("free", {});
  rig.run_for(1s);
  const auto shares = rig.measure(3s);
  // Of its residence a part goes into switching contexts.
  EXPECT_NEAR(rig.record(*rig.programs[0]).share_permille, 300, 10);
  EXPECT_GT(shares[0], 0.28);
  EXPECT_GT(shares[1], 0.66) << "the other gets the rest";
  EXPECT_GT(rig.record(*rig.programs[0]).throttled_ns, 1'000'000'000u);
}

TEST(SchedulerShares, ACapOfTheWholeGpuIsNone) {
  SchedulerRig rig;
  rig.run_busy({{"whole", {{"max", "100%"}}}}, 3s);
  EXPECT_GT(rig.measure(3s)[0], 0.999);
  EXPECT_EQ(rig.record(*rig.programs[0]).freezes, 0u);
  EXPECT_EQ(rig.record(*rig.programs[0]).has_bucket, 0u);
}

TEST(SchedulerShares, ATenantsCapBindsAllItsProcessesTogether) {
  SchedulerRig rig;
  rig.run_busy({{"capped", {{"max", "20%"}}}, {"capped", {}}}, 1s);
  const auto shares = rig.measure(3s);
  EXPECT_NEAR(shares[0] + shares[1], 0.20, kPoint);
}

TEST(SchedulerShares, IdleClassProcessesTakeTurnsAndGiveWay) {
  SchedulerRig rig;
  rig.start();
  for (int i = 0; i < 3; ++i) rig.add_busy("batch", {{"priority", "idle"}});
  rig.run_for(1s);
  const auto alone = rig.measure(3s);
  for (const double share : alone) EXPECT_NEAR(share, 1.0 / 3, 0.06);
  EXPECT_GT(alone[0] + alone[1] + alone[2], 0.9);
  rig.add_busy("front", {});
  rig.run_for(1s);
  const auto beside = rig.measure(2s);
  EXPECT_GT(beside[3], 0.9);
}

TEST(SchedulerShares, APeriodicProgramIsServedAtOnceBesideIdleClassWork) {
  SchedulerRig rig;
  rig.start();
  for (int i = 0; i < 3; ++i) rig.add_busy("batch", {{"priority", "idle"}});
  sim::PeriodicKernel periodic(rig.add("front", {{"priority", "high"}}), 100us, 5ms);
  rig.run_for(4s);
  EXPECT_GT(periodic.samples(), 500u);
  EXPECT_LE(periodic.percentile(0.5), 320);
  EXPECT_LE(periodic.percentile(0.99), 350);
}

// Where the background passes from one program to the other, too: a request waits for one of them.
TEST(SchedulerShares, NoRequestOfTheHighClassWaitsForTwoOthers) {
  SchedulerRig rig;
  rig.start();
  for (int i = 0; i < 2; ++i) rig.add_busy("batch" + std::to_string(i), {});
  sim::Program& front = rig.add("front", {{"priority", "high"}});
  rig.run_for(500ms);
  sim::PeriodicKernel periodic(front, 100us, 1ms);
  rig.run_for(20s);
  EXPECT_GT(periodic.samples(), 10'000u);
  EXPECT_LE(periodic.percentile(1), 320);
}

TEST(SchedulerShares, TheUsersFreezeHoldsUntilHeThaws) {
  SchedulerRig rig;
  rig.run_busy({{"a", {}}, {"b", {}}}, 200ms);
  ASSERT_TRUE(rig.tenants.set_frozen(rig.programs[0]->process, true));
  rig.run_for(200ms);
  EXPECT_EQ(rig.record(*rig.programs[0]).state, ProcessState::kFrozenUser);
  EXPECT_EQ(rig.measure(1s)[0], 0);
  ASSERT_TRUE(rig.tenants.set_frozen(rig.programs[0]->process, false));
  rig.run_for(200ms);
  EXPECT_GT(rig.measure(1s)[0], 0.4);
}

// A tenant's time passes once, whatever the number of its processes.
TEST(SchedulerShares, TheTimeInWhichATenantIsFrozenIsCountedByReason) {
  SchedulerRig rig;
  rig.start();
  for (int i = 0; i < 3; ++i) rig.add_busy("batch", {{"priority", "idle"}});
  rig.add_busy("capped", {{"max", "20%"}});
  rig.add_busy("stopped", {});
  rig.run_for(200ms);
  ASSERT_TRUE(rig.tenants.set_frozen(rig.programs[4]->process, true));
  rig.run_for(5s);
  const auto use = [&](const char* tenant) {
    return rig.scheduler->state().tenant_use.at(*rig.tenants.find(tenant));
  };
  const TenantUse batch = use("batch"), capped = use("capped"), stopped = use("stopped");
  EXPECT_GT(batch.frozen_turn, 4s);
  EXPECT_LT(batch.frozen_turn, 5300ms);
  EXPECT_EQ(batch.throttled + batch.frozen_user, 0s);
  EXPECT_GT(capped.throttled, 3s);
  EXPECT_EQ(capped.frozen_turn + capped.frozen_user, 0s);
  EXPECT_GT(stopped.frozen_user, 4900ms);
  EXPECT_LT(stopped.frozen_user, 5100ms);
  EXPECT_EQ(stopped.throttled + stopped.frozen_turn, 0s);
}

TEST(SchedulerShares, ANewContextOfAFrozenProcessIsFrozenToo) {
  SchedulerRig rig(2);
  rig.start();
  sim::Program& program = rig.add_busy("a", {});
  rig.run_for(100ms);
  ASSERT_TRUE(rig.tenants.set_frozen(program.process, true));
  rig.run_for(100ms);
  const auto context_on = [&](uint32_t gpu) {
    return rig.machine.model.create_context(program.client, gpu).value().context;
  };
  const uint32_t elsewhere = context_on(1);
  rig.run_for(100ms);
  EXPECT_EQ(rig.record(program, 1).state, ProcessState::kFrozenUser) << "on another GPU";
  ASSERT_TRUE(rig.machine.model.destroy_context(program.client, elsewhere));
  ASSERT_TRUE(rig.machine.model.destroy_context(program.client, program.context.context));
  rig.run_for(100ms);
  EXPECT_EQ(rig.records(), 0u);
  program.context.context = context_on(0);
  const uint64_t work = program.endless();
  rig.run_for(100ms);
  const Nanos before = program.executed(work);
  rig.run_for(500ms);
  EXPECT_EQ(rig.record(program).state, ProcessState::kFrozenUser) << "after it had none";
  EXPECT_EQ(program.executed(work), before) << "its new channels";
  ASSERT_TRUE(rig.tenants.set_frozen(program.process, false));
  rig.run_for(500ms);
  EXPECT_GT(program.executed(work), before);
}

TEST(SchedulerShares, EachGpuHasItsOwnShares) {
  SchedulerRig rig(2);
  rig.start();
  rig.add_busy("a", {{"weight", "300"}}, 0);
  rig.add_busy("b", {}, 0);
  rig.add_busy("c", {}, 1);
  rig.run_for(2s);
  const auto shares = rig.measure(2s);
  EXPECT_NEAR(shares[0] / (shares[0] + shares[1]), 0.75, kPoint);
  EXPECT_GT(shares[2], 0.95) << "alone on its GPU";
}

TEST(SchedulerShares, TicksSlowlyUnlessTurnsOrACapNeedMore) {
  SchedulerRig rig;
  rig.run_busy({{"a", {}}, {"b", {}}}, 1s);
  const uint64_t before = rig.scheduler->state().ticks;
  rig.run_for(2s);
  EXPECT_LE(rig.scheduler->state().ticks - before, 30u);
  const std::vector<Setting> capped{{"max", "20%"}};
  ASSERT_TRUE(rig.tenants.set("a", capped, false));
  rig.run_for(1s);
  const uint64_t with_cap = rig.scheduler->state().ticks;
  EXPECT_GT(with_cap - before, 60u);
  EXPECT_LT(with_cap - before, 260u) << "20 a period and the slow ones";
  const std::vector<Setting> idle{{"priority", "idle"}, {"max", "max"}};
  ASSERT_TRUE(rig.tenants.set("a", idle, false));
  ASSERT_TRUE(rig.tenants.set("b", idle, false));
  rig.add_busy("c", {});
  rig.run_for(1s);
  EXPECT_GT(rig.scheduler->state().ticks - with_cap, 400u) << "every 2 ms";
}

TEST(SchedulerShares, LeavesTheGpusBeyondThoseThatThereIsRoomForAlone) {
  SchedulerRig rig(kMaxGpus + 3);
  rig.start();
  rig.add_busy("a", {{"max", "10%"}}, kMaxGpus - 1);
  rig.add_busy("b", {{"max", "10%"}}, kMaxGpus);
  rig.add_busy("c", {{"max", "10%"}}, kMaxGpus + 2);
  rig.run_for(2s);
  const auto shares = rig.measure(1s);
  EXPECT_NEAR(shares[0], 0.1, kPoint);
  EXPECT_GT(shares[1], 0.95);
  EXPECT_GT(shares[2], 0.95);
  EXPECT_EQ(rig.records(), 1u);
  rig.scheduler->stop();
}

// As the kernel module's gpu_max says.
TEST(SchedulerShares, ACapOfOneGpuLeavesTheOthersFree) {
  SchedulerRig rig(2);
  rig.start();
  rig.add_busy("a", {{"max", "60%"}}, 0);
  rig.add_busy("a", {}, 1);
  const uint32_t slot = *rig.tenants.find("a");
  rig.tenants.set_gpu_caps(slot, {{1, Cap{20ms, 100ms}}});
  rig.run_for(2s);
  std::vector<double> shares = rig.measure(5s);
  EXPECT_NEAR(shares[0], 0.6, kPoint);
  EXPECT_NEAR(shares[1], 0.2, kPoint);
  rig.tenants.set_gpu_caps(slot, {{1, Cap{100ms, 100ms}}});
  rig.run_for(2s);
  shares = rig.measure(5s);
  EXPECT_NEAR(shares[1], 0.6, kPoint) << "of both the lesser one holds";
}

}  // namespace
}  // namespace gpushare
