// SPDX-License-Identifier: Apache-2.0
// The agent's work on a simulated GPU in virtual time: what users are promised, in simulated
// seconds.
#include "sched/step/scheduler.h"

#include <gtest/gtest.h>

#include "tests/sched/support/events.h"
#include "tests/sched/support/fake_gpu.h"
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

TEST(Scheduler, ACapOfTheWholeGpuIsNone) {
  SchedulerRig rig;
  rig.start();
  rig.add_busy("whole", {{"max", "100%"}});
  rig.run_for(3s);
  EXPECT_GT(rig.measure(3s)[0], 0.999);
  EXPECT_EQ(rig.record(*rig.programs[0]).freezes, 0u);
  EXPECT_EQ(rig.record(*rig.programs[0]).has_bucket, 0u);
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

// Programs of one tenant, each of which ends when it has worked for so long; the next one begins at
// once. What they did of the GPU, as a part of `time`.
double run_short_programs(SchedulerRig& rig, const std::string& tenant, Nanos work, Nanos time) {
  static pid_t pid = 5000;
  Nanos done{};
  const Time end = rig.machine.model.now() + time;
  while (rig.machine.model.now() < end) {
    sim::Program program(rig.machine, pid++);
    EXPECT_TRUE(rig.tenants.attach(program.process, tenant));
    const uint64_t kernel = program.kernel(work);
    bool has_ended = false;
    rig.machine.then[kernel] = [&](const sim::Completion&) { has_ended = true; };
    while (!has_ended && rig.machine.model.now() < end) rig.run_for(1ms);
    done += program.executed(kernel);
    if (has_ended) done += work;
    rig.machine.then.erase(kernel);
    rig.machine.model.close_client(program.client);
  }
  return std::chrono::duration<double>(done) / time;
}

double charged(const SchedulerRig& rig, const std::string& tenant) {
  const auto use = rig.scheduler->state().tenant_use.find(*rig.tenants.find(tenant));
  if (use == rig.scheduler->state().tenant_use.end()) return 0;
  return std::chrono::duration<double>(use->second.used[0]).count();
}

TEST(Scheduler, ATenantOfShortProgramsHasNoMoreThanItsCap) {
  struct Row {
    const char* cap;
    double part;
    Nanos work;
  };
  for (const Row& row : {Row{"10%", 0.1, 50ms},
                         {"50%", 0.5, 80ms},
                         {"30%", 0.3, 30ms},
                         {"10%", 0.1, 5ms},
                         {"10%", 0.1, 2ms}}) {
    SchedulerRig rig;
    rig.start();
    const std::vector<Setting> capped{{"max", row.cap}};
    ASSERT_TRUE(rig.tenants.set("capped", capped, /*create=*/true));
    const double share = run_short_programs(rig, "capped", row.work, 5s);
    EXPECT_LE(share, 1.1 * row.part) << row.cap << ' ' << row.work / 1ms << " ms";
    EXPECT_GE(share, 0.85 * row.part) << row.cap << ' ' << row.work / 1ms << " ms";
    rig.run_for(300ms);
    EXPECT_NEAR(charged(rig, "capped") / 5, share, 0.02) << row.cap << ' ' << row.work / 1ms;
  }
}

TEST(Scheduler, AProgramThatComesAndGoesBetweenTwoStepsIsItsTenants) {
  SchedulerRig rig;
  rig.start();
  rig.run_for(10ms);
  ASSERT_TRUE(rig.tenants.set("quick", {}, /*create=*/true));
  {
    sim::Program program(rig.machine, 700);
    ASSERT_TRUE(rig.tenants.attach(program.process, "quick"));
    program.kernel(20ms);
    rig.machine.run_for(30ms);  // the agent is busy elsewhere
    rig.machine.model.close_client(program.client);
  }
  rig.run_for(300ms);
  EXPECT_NEAR(charged(rig, "quick"), 0.03, 0.001) << "alone it stays on the GPU to its end";
  EXPECT_TRUE(rig.scheduler->state().members.empty());
  EXPECT_TRUE(rig.scheduler->state().departed.empty()) << "not for ever";
}

TEST(Scheduler, WhatTheLogSaysOfAPidIsItsBearersAtThatTime) {
  SchedulerRig rig;
  rig.start();
  rig.run_for(10ms);
  for (const char* tenant : {"first", "second"})
    ASSERT_TRUE(rig.tenants.set(tenant, {}, /*create=*/true));
  sim::Model& model = rig.machine.model;
  for (const auto& [tenant, start, work] :
       {std::tuple{"first", 1U, 40ms}, std::tuple{"second", 2U, 10ms}}) {
    const ProcessId process{700, start};
    rig.processes.add(process, "program");
    ASSERT_TRUE(rig.tenants.attach(process, tenant));
    const uint32_t client = model.open_client(process, {});
    const auto context = model.create_context(client, 0).value();
    model.submit(client, {.sequence = start,
                          .context = context.context,
                          .queue = 0,
                          .kind = sim::WorkKind::kKernel,
                          .direction = sim::Direction::kNone,
                          .amount = static_cast<uint64_t>(Nanos(work).count()),
                          .sm_ppm = sim::kAllSms,
                          .reserved = 0});
    rig.run_for(work + 5ms);
    model.close_client(client);
  }
  rig.run_for(300ms);
  EXPECT_NEAR(charged(rig, "first"), 0.045, 0.002);
  EXPECT_NEAR(charged(rig, "second"), 0.015, 0.002);
}

TEST(Scheduler, AProgramThatWasThereBeforeIsItsUsersAndNotRoots) {
  SchedulerRig rig;
  sim::Program program(rig.machine, 700);
  program.endless();
  rig.processes.add(program.process, "train", 1000);
  ASSERT_TRUE(rig.observer.drain([](DriverEvent&&) {}));  // nobody was watching
  ASSERT_TRUE(rig.tenants.reload(
      {.tenants = {{"alice", {}}}, .rules = {{"alice", {}, "alice", {}}, {"root", {}, "0", {}}}}));
  rig.start();
  rig.run_for(500ms);
  EXPECT_EQ(rig.tenants.tenant_of(program.process), *rig.tenants.find("alice"));
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

TEST(Scheduler, WhatEndedWhileTheGpusWereLostIsSeenToHaveEnded) {
  SchedulerRig rig;
  rig.start();
  sim::Program& program = rig.add_busy("default", {});
  ASSERT_TRUE(rig.tenants.create_transient(program.process, {}));
  rig.run_for(200ms);
  ASSERT_EQ(rig.records(), 1u);
  rig.kill();  // the scheduler; the agent lives, and keeps its tenants
  rig.machine.model.close_client(program.client);
  rig.processes.dead[program.process.pid] = true;
  ASSERT_TRUE(rig.observer.drain([](DriverEvent&&) {}));
  rig.start();
  rig.run_for(2s);
  EXPECT_EQ(rig.tenants.slots().size(), 1u) << "the transient tenant has gone";
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
  rig.step();  // it has looked at all that were there before
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
    std::unique_ptr<ObjectSearch> attach(pid_t, std::span<const ObjectRef>) override {
      return found_at_once(std::unexpected(gone().error()));
    }
    Result<std::vector<pid_t>> users() const override { return {}; }

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

// One that makes events without an end, as a program does that allocates and frees in a loop.
class EndlessEvents final : public Observer {
 public:
  using Observer::drain;
  int fd() const override { return -1; }
  uint64_t dropped() const override { return 0; }
  Result<uint64_t> drain(const Sink& sink, uint64_t most) override {
    uint64_t count = 0;
    while (count < most && count < kMuch) {
      sink({Time{1s}, {4711, 1}, ObjectFreed{.client = 1, .object = 2}});
      ++count;
    }
    return count;
  }
  static constexpr uint64_t kMuch = 1'000'000;
};

TEST(Scheduler, AFloodOfEventsDoesNotHoldAStepUp) {
  SchedulerRig rig;
  EndlessEvents endless;
  Scheduler scheduler({.gpu = rig.gpu,
                       .observer = &endless,
                       .region = *rig.region,
                       .processes = rig.processes,
                       .clock = rig.clock,
                       .tenants = rig.tenants},
                      AgentIdentity{}, Config(test::every_policy()));
  const Time now = rig.clock.now();
  EXPECT_LE(scheduler.step(), now) << "the others are taken at once";
  EXPECT_GT(scheduler.state().events, 0u);
  EXPECT_LE(scheduler.state().events, 10'000u);
}

TEST(Scheduler, ARuleByUserHoldsAlsoWhenTheNameServiceIsLate) {
  SchedulerRig rig;
  TenantsConfig config;
  config.tenants.push_back({.name = "theirs", .settings = {}});
  config.rules.push_back({.tenant = "theirs", .cgroup = {}, .user = "alice", .command = {}});
  ASSERT_TRUE(rig.tenants.reload(config));
  rig.processes.user_names[0] = "alice";
  rig.processes.is_name_service_late = true;
  rig.start();
  sim::Program program(rig.machine, 500, 0);
  rig.processes.add(program.process, "serve");
  rig.run_for(2s);
  const auto tenant = [&] { return rig.tenants.at(rig.tenants.tenant_of(program.process))->name; };
  EXPECT_EQ(tenant(), "default");
  rig.processes.is_name_service_late = false;
  rig.run_for(2s);
  EXPECT_EQ(tenant(), "theirs");
}

TEST(Scheduler, CommandsAreNotPublishedWhereProcHidesThem) {
  for (const bool hides : {false, true}) {
    SchedulerRig rig;
    rig.processes.hides = hides;
    rig.start();
    rig.add_busy("a", {});
    rig.processes.add(rig.programs[0]->process, "serve --secret");
    rig.run_for(200ms);
    const ProcessRecord record = rig.record(*rig.programs[0]);
    ASSERT_EQ(record.pid, rig.programs[0]->process.pid);
    EXPECT_STREQ(record.command, hides ? "" : "program");
    EXPECT_STREQ(record.command_line, hides ? "" : "serve --secret");
  }
}

TEST(Scheduler, ProgramsThatComeAndGoDoNotHaveEverythingPublishedAtEveryStep) {
  SchedulerRig rig;
  rig.start();
  rig.run_for(200ms);
  const auto published = [&] { return rig.region->header.publication.load() / 2; };
  const uint64_t before = published();
  for (int i = 0; i < 200; ++i) {
    sim::Program program(rig.machine, 5000 + i);
    rig.run_for(1ms);
  }
  EXPECT_LE(published() - before, 25u) << "in 200 ms";
  rig.add_busy("last", {});
  rig.run_for(20ms);
  EXPECT_EQ(rig.record(*rig.programs[0]).pid, rig.programs[0]->process.pid);
}

// Whatever is set for a GPU: a policy that was made for other settings is made anew.
TEST(Scheduler, AReloadComparesAllThatIsSetForAGpu) {
  int made = 0;
  PolicyEntry entry = test::every_policy().front();
  entry.make = [&made](const GpuView&, const PolicyOptions&) {
    ++made;
    return test::make_policy("fair");
  };
  Config config(std::span(&entry, 1));
  SchedulerRig rig;
  Scheduler scheduler({.gpu = rig.gpu,
                       .observer = &rig.observer,
                       .region = *rig.region,
                       .processes = rig.processes,
                       .clock = rig.clock,
                       .tenants = rig.tenants},
                      AgentIdentity{}, config);
  EXPECT_EQ(made, 1);
  scheduler.configure(config);
  EXPECT_EQ(made, 1);
  config.other_gpus.is_spatial = true;
  scheduler.configure(config);
  EXPECT_EQ(made, 2);
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

// The control plane and the accounts have room for kMaxGpus.
TEST(Scheduler, LeavesTheGpusBeyondThoseThatThereIsRoomForAlone) {
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

class HalfDeadGpu final : public test::FakeGpu {
 public:
  HalfDeadGpu() : FakeGpu(2) {}
  Result<SwitchBatch> read_switches(uint32_t gpu) override {
    if (gpu == 1) ++reads;
    if (gpu == 1 && is_dead)
      return std::unexpected(make_error(std::errc::io_error, "ask the GPU").error());
    return FakeGpu::read_switches(gpu);
  }
  bool is_dead = false;
  int reads = 0;
};

TEST(Scheduler, OneDeadGpuIsLeftAloneAndAskedAgainWhileTheOthersGoOn) {
  HalfDeadGpu gpu;
  ManualClock clock;
  clock.advance(1s);
  const auto region = std::make_unique<Region>();
  test::FakeProcReader processes;
  Tenants tenants;
  constexpr ProcessId kOn0{100, 1100}, kOn1{200, 1200};
  gpu.attachable[kOn0.pid] =
      test::program(kOn0, {.client = 0xA, .device = 1, .group = 0x10, .first_channel = 0x20}, 0);
  gpu.attachable[kOn1.pid] =
      test::program(kOn1, {.client = 0xB, .device = 1, .group = 0x10, .first_channel = 0x20}, 1);
  Scheduler scheduler({.gpu = gpu,
                       .observer = nullptr,
                       .region = *region,
                       .processes = processes,
                       .clock = clock,
                       .tenants = tenants},
                      AgentIdentity{}, Config(test::every_policy()));
  const auto run = [&](Nanos time) {
    for (const Time until = clock.now() + time; clock.now() < until; clock.advance(100ms))
      scheduler.step();
  };
  run(2s);
  ASSERT_TRUE(tenants.set_frozen(kOn0, true));
  ASSERT_TRUE(tenants.set_frozen(kOn1, true));
  run(1s);
  EXPECT_EQ(gpu.frozen_channels(), 16);
  gpu.is_dead = true;
  run(10s);
  EXPECT_FALSE(scheduler.is_lost());
  EXPECT_EQ(gpu.frozen_channels(), 8) << "nobody stays frozen where nothing is known";
  EXPECT_EQ(scheduler.state().gpu_problems[1],
            "GPU 1 does not answer: ask the GPU: Input/output error");
  EXPECT_STREQ(read_record(region->agent)->observe_only_reason,
               scheduler.state().gpu_problems[1].c_str());
  gpu.reads = 0;
  run(600s);
  EXPECT_GE(gpu.reads, 8);
  EXPECT_LE(gpu.reads, 20);
  gpu.is_dead = false;
  run(61s);
  EXPECT_EQ(scheduler.state().gpu_problems[1], "");
  EXPECT_EQ(gpu.frozen_channels(), 16);
}

}  // namespace
}  // namespace gpushare
