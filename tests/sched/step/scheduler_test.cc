// SPDX-License-Identifier: Apache-2.0
// The agent's work on a simulated GPU in virtual time: what users are promised, in simulated
// seconds.
#include "sched/step/scheduler.h"

#include <gtest/gtest.h>

#include "tests/sched/support/scheduler_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::SchedulerRig;

constexpr double kPoint = 0.01;

TEST(Scheduler, WeightsHold) {
  SchedulerRig rig;
  rig.start();
  rig.add_busy("a", {{"weight", "300"}});
  rig.add_busy("b", {{"weight", "100"}});
  rig.run_for(2s);
  const auto shares = rig.measure(3s);
  const double sum = shares[0] + shares[1];
  EXPECT_NEAR(shares[0] / sum, 0.75, kPoint);
  EXPECT_GT(sum, 0.90);
  const ProcessRecord record = rig.record(*rig.programs[0]);
  EXPECT_EQ(record.target_permille, 750u);
  EXPECT_NEAR(record.share_permille, shares[0] * 1000, 10);
  EXPECT_EQ(record.state, ProcessState::kRunning);
}

TEST(Scheduler, AChangeOfWeightsTakesEffectWhileProgramsRun) {
  SchedulerRig rig;
  rig.start();
  rig.add_busy("a", {{"weight", "100"}});
  rig.add_busy("b", {{"weight", "100"}});
  rig.run_for(1s);
  const std::vector<Setting> heavier{{"weight", "400"}};
  ASSERT_TRUE(rig.tenants.set("b", heavier, false));
  rig.run_for(2s);
  const auto shares = rig.measure(2s);
  EXPECT_NEAR(shares[1] / (shares[0] + shares[1]), 0.8, kPoint);
}

TEST(Scheduler, ACapHoldsAloneAndBesideAnother) {
  SchedulerRig rig;
  rig.start();
  rig.add_busy("capped", {{"max", "30%"}});
  rig.run_for(1s);
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

TEST(Scheduler, ATenantsCapBindsAllItsProcessesTogether) {
  SchedulerRig rig;
  rig.start();
  rig.add_busy("capped", {{"max", "20%"}});
  rig.add_busy("capped", {});
  rig.run_for(1s);
  const auto shares = rig.measure(3s);
  EXPECT_NEAR(shares[0] + shares[1], 0.20, kPoint);
}

TEST(Scheduler, IdleClassProcessesTakeTurnsAndGiveWay) {
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

TEST(Scheduler, APeriodicProgramIsServedAtOnceBesideIdleClassWork) {
  SchedulerRig rig;
  rig.start();
  for (int i = 0; i < 3; ++i) rig.add_busy("batch", {{"priority", "idle"}});
  sim::PeriodicKernel periodic(rig.add("front", {{"priority", "high"}}), 100us, 5ms);
  rig.run_for(4s);
  EXPECT_GT(periodic.samples(), 500u);
  EXPECT_LE(periodic.percentile(0.5), 320);
  EXPECT_LE(periodic.percentile(0.99), 350);
}

TEST(Scheduler, TheUsersFreezeHoldsUntilHeThaws) {
  SchedulerRig rig;
  rig.start();
  rig.add_busy("a", {});
  rig.add_busy("b", {});
  rig.run_for(200ms);
  ASSERT_TRUE(rig.tenants.set_frozen(rig.programs[0]->process, true));
  rig.run_for(200ms);
  EXPECT_EQ(rig.record(*rig.programs[0]).state, ProcessState::kFrozenUser);
  EXPECT_EQ(rig.measure(1s)[0], 0);
  ASSERT_TRUE(rig.tenants.set_frozen(rig.programs[0]->process, false));
  rig.run_for(200ms);
  EXPECT_GT(rig.measure(1s)[0], 0.4);
}

TEST(Scheduler, ANewContextOfAFrozenProcessIsFrozenToo) {
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

TEST(Scheduler, ATenantInARemovedOnesSlotBeginsWithNothing) {
  SchedulerRig rig;
  rig.start();
  sim::Program& program = rig.add_busy("old", {{"max", "10%"}});
  rig.run_for(3s);
  const uint32_t slot = rig.tenants.find("old").value();
  ASSERT_GT(rig.scheduler->state().tenant_use.at(slot).freezes, 0u);
  // Between two steps, so that no step sees the slot free.
  ASSERT_TRUE(rig.tenants.remove("old"));
  const std::vector<Setting> capped{{"max", "10%"}};
  const uint32_t next = rig.tenants.set("new", capped, true).value();
  ASSERT_TRUE(rig.tenants.attach(program.process, "new"));
  rig.step();
  const auto tenant_use = rig.scheduler->state().tenant_use;
  const TenantUse use = tenant_use.contains(next) ? tenant_use.at(next) : TenantUse{};
  EXPECT_EQ(use.freezes, 0u);
  EXPECT_LT(use.used[0], 100ms);
  EXPECT_LT(use.throttled, 200ms);
  EXPECT_FALSE(tenant_use.contains(slot) && slot != next);
  EXPECT_GT(rig.region->tenants[next].buckets[0].tokens(), 0ns) << "its bucket starts full";
  rig.run_for(100ms);
  EXPECT_EQ(rig.tenants.set("third", {}, true).value(), slot) << "the slot is used again";
}

TEST(Scheduler, FindsProgramsThatWereThereBefore) {
  SchedulerRig rig;
  rig.add_busy("a", {{"weight", "300"}});
  rig.add_busy("b", {{"weight", "100"}});
  rig.machine.run_for(1s);
  ASSERT_TRUE(rig.observer.drain([](DriverEvent&&) {}));  // nobody was watching
  rig.start();
  rig.run_for(2s);
  const auto shares = rig.measure(3s);
  EXPECT_NEAR(shares[0] / (shares[0] + shares[1]), 0.75, kPoint);
  EXPECT_EQ(rig.record(*rig.programs[0]).is_late_attach, 1u);
}

TEST(Scheduler, FindsProgramsWithoutAnObserver) {
  SchedulerRig rig;
  rig.start(/*with_observer=*/false);
  rig.run_for(100ms);
  rig.add_busy("a", {});
  rig.run_for(1500ms);
  EXPECT_EQ(rig.record(*rig.programs[0]).pid, rig.programs[0]->process.pid);
}

TEST(Scheduler, LooksAgainAfterEventsWereLost) {
  SchedulerRig rig;
  rig.start();
  rig.run_for(100ms);
  rig.add_busy("a", {});
  rig.observer.lose_pending();
  rig.run_for(500ms);  // finding it takes 100 ms of work, in steps of half a millisecond
  EXPECT_EQ(rig.record(*rig.programs[0]).pid, rig.programs[0]->process.pid);
}

TEST(Scheduler, AnAgentThatDiedIsCleanedUpAfterByTheNext) {
  SchedulerRig rig;
  rig.start();
  rig.add_busy("capped", {{"max", "10%"}});
  rig.add_busy("batch", {{"priority", "idle"}});
  rig.add_busy("batch", {});
  rig.run_for(1s);
  while (rig.ledger_entries() == 0 ||
         rig.record(*rig.programs[0]).state != ProcessState::kFrozenCap)
    rig.run_for(1ms);
  rig.kill();
  rig.start();
  rig.run_for(2s);
  EXPECT_NEAR(rig.measure(3s)[0], 0.10, kPoint);
  rig.scheduler->stop();
  EXPECT_EQ(rig.ledger_entries(), 0u);
  rig.kill();
  for (const auto& program : rig.programs) EXPECT_EQ(rig.gpu.slice(program->group()), 2048us);
  // A surplus freeze left over would show now.
  for (const double share : rig.measure(1s)) EXPECT_GT(share, 0.2);
}

TEST(Scheduler, ARefusedProcessIsOnlyObservedAndTheOthersAreServed) {
  SchedulerRig rig;
  rig.start();
  rig.add_busy("stubborn", {{"max", "10%"}});
  rig.gpu.refuse(rig.programs[0]->process.pid);
  rig.add_busy("capped", {{"max", "10%"}});
  rig.run_for(2s);
  const ProcessRecord record = rig.record(*rig.programs[0]);
  EXPECT_EQ(record.state, ProcessState::kObserveOnly);
  EXPECT_STRNE(record.note, "");
  const auto shares = rig.measure(2s);
  EXPECT_NEAR(shares[1], 0.10, kPoint);
}

TEST(Scheduler, EachGpuHasItsOwnShares) {
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

TEST(Scheduler, TwoHundredProgramsLeaveNothingBehind) {
  SchedulerRig rig;
  rig.start();
  rig.run_for(100ms);
  for (pid_t pid = 1000; pid < 1200; ++pid) {
    sim::Program program(rig.machine, pid);
    program.endless();
    rig.run_for(10ms);
    ASSERT_EQ(rig.records(), 1u);
    rig.machine.model.close_client(program.client);
    rig.run_for(3ms);
  }
  rig.run_for(200ms);
  EXPECT_EQ(rig.records(), 0u);
  EXPECT_EQ(rig.ledger_entries(), 0u);
  EXPECT_TRUE(rig.scheduler->state().registry.processes().empty());
  EXPECT_TRUE(rig.scheduler->state().members.empty());
  EXPECT_EQ(rig.scheduler->state().tenants.slots().size(), 1u);
}

TEST(Scheduler, LooksAtWhoUsesTheDriverAndWasNotSeenToMakeAGroup) {
  SchedulerRig rig;
  rig.start();
  sim::Program program(rig.machine, 500);
  ASSERT_TRUE(rig.observer.drain([](DriverEvent&&) {}));  // as when its MPS server makes them
  rig.run_for(2s);
  EXPECT_EQ(rig.records(), 0u) << "nothing is known of it";
  ASSERT_TRUE(rig.machine.model.allocate(program.client, program.context.context, 1 << 20));
  rig.run_for(1100ms);
  EXPECT_EQ(rig.records(), 1u);
}

TEST(Scheduler, TicksSlowlyUnlessTurnsOrACapNeedMore) {
  SchedulerRig rig;
  rig.start();
  rig.add_busy("a", {});
  rig.add_busy("b", {});
  rig.run_for(1s);
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

TEST(Scheduler, GivesUpOnAGpuThatDoesNotAnswer) {
  class DeadGpu final : public Gpu {
   public:
    std::span<const GpuInfo> gpus() const override { return {&info_, 1}; }
    const GpuSupport& support() const override { return support_; }
    Result<> freeze(uint32_t, std::span<const ChannelRef>) override { return gone(); }
    Result<> thaw(uint32_t, std::span<const ChannelRef>) override { return gone(); }
    Result<> set_slice(const GroupRef&, Micros) override { return gone(); }
    Result<Micros> slice(const GroupRef&) override { return std::unexpected(gone().error()); }
    bool knows_channel_class(uint32_t) const override { return true; }
    Result<uint32_t> hardware_group(const GroupRef&) override { return 0; }
    Result<> stop(const ProcessId&) override { return gone(); }
    Result<> resume(const ProcessId&) override { return gone(); }
    Result<SwitchBatch> read_switches(uint32_t) override { return std::unexpected(gone().error()); }
    std::optional<std::vector<Utilisation>> utilisation(uint32_t) override { return std::nullopt; }
    std::unique_ptr<ObjectSearch> attach(pid_t) override {
      return found_at_once(std::unexpected(gone().error()));
    }
    std::vector<pid_t> users() const override { return {}; }

   private:
    static Result<> gone() { return make_error(std::errc::connection_reset, "ask the GPU"); }
    GpuInfo info_{};
    GpuSupport support_{true, true, true, "fake", ""};
  };
  DeadGpu gpu;
  ManualClock clock;
  clock.advance(1s);
  const auto region = std::make_unique<Region>();
  test::FakeProcReader processes;
  Tenants tenants;
  Scheduler scheduler({.gpu = gpu,
                       .observer = nullptr,
                       .region = *region,
                       .processes = processes,
                       .clock = clock,
                       .tenants = tenants},
                      AgentIdentity{}, Config(test::every_policy()));
  EXPECT_FALSE(scheduler.is_lost());
  for (int i = 0; i < 100; ++i) {
    clock.advance(100ms);
    scheduler.step();
  }
  EXPECT_TRUE(scheduler.is_lost());
}

// A program can rewrite the arguments of its calls before the probe reads them, so that no event
// tells of it. The switch log does.
TEST(Scheduler, WhoRunsUnseenIsFoundByTheSwitchLog) {
  SchedulerRig rig;
  rig.start();
  rig.add_busy("a", {});
  rig.run_for(1s);
  rig.add_busy("hidden", {{"max", "20%"}});
  ASSERT_TRUE(rig.observer.drain([](DriverEvent&&) {}));
  rig.run_for(3s);
  EXPECT_NE(rig.record(*rig.programs[1]).pid, 0) << "it is known";
  EXPECT_NEAR(rig.measure(5s)[1], 0.2, 0.02) << "and held to its cap";
}

}  // namespace
}  // namespace gpushare
