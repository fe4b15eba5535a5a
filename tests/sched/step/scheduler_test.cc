// SPDX-License-Identifier: Apache-2.0
// The agent's work as a whole, on a simulated GPU in virtual time: what ends, fails or floods.
#include "sched/step/scheduler.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/sched/enforce/queued_line.h"
#include "tests/sched/support/events.h"
#include "tests/sched/support/fake_gpu.h"
#include "tests/sched/support/scheduler_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::FakeSchedulerRig;
using test::kPoint;
using test::SchedulerRig;

TEST(Scheduler, AStopRightAfterATenantWithProgramsIsRemovedUndoesAll) {
  SchedulerRig rig;
  rig.run_busy({{"capped", {{"max", "10%"}}}, {"other", {}}}, 1s);
  while (rig.ledger_entries() == 0) rig.run_for(1ms);
  ASSERT_TRUE(rig.tenants.remove("capped"));
  rig.scheduler->stop();
  EXPECT_EQ(rig.ledger_entries(), 0u);
}

TEST(Scheduler, AnAgentThatDiedIsCleanedUpAfterByTheNext) {
  SchedulerRig rig;
  rig.run_busy({{"capped", {{"max", "10%"}}}, {"batch", {{"priority", "idle"}}}, {"batch", {}}},
               1s);
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
    std::optional<UtilisationSample> utilisation(uint32_t) override { return std::nullopt; }
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
  FakeSchedulerRig rig;
  rig.start(gpu);
  EXPECT_FALSE(rig.scheduler->is_lost());
  rig.run_for(10s);
  EXPECT_TRUE(rig.scheduler->is_lost());
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
  rig.SchedulerParts::start(rig.gpu, &endless, rig.clock);
  const Time now = rig.clock.now();
  EXPECT_LE(rig.scheduler->step(), now) << "the others are taken at once";
  EXPECT_GT(rig.scheduler->state().events, 0u);
  EXPECT_LE(rig.scheduler->state().events, 10'000u);
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
  rig.SchedulerParts::start(rig.gpu, &rig.observer, rig.clock, config);
  EXPECT_EQ(made, 1);
  rig.scheduler->configure(config);
  EXPECT_EQ(made, 1);
  config.other_gpus.is_spatial = true;
  rig.scheduler->configure(config);
  EXPECT_EQ(made, 2);
}

// tells of it. The switch log does.

// The control plane and the accounts have room for kMaxGpus.

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
  constexpr ProcessId kOn0{100, 1100}, kOn1{200, 1200};
  gpu.attachable[kOn0.pid] =
      test::program(kOn0, {.client = 0xA, .device = 1, .group = 0x10, .first_channel = 0x20}, 0);
  gpu.attachable[kOn1.pid] =
      test::program(kOn1, {.client = 0xB, .device = 1, .group = 0x10, .first_channel = 0x20}, 1);
  FakeSchedulerRig rig;
  rig.start(gpu);
  rig.run_for(2s);
  ASSERT_TRUE(rig.tenants.set_frozen(kOn0, true));
  ASSERT_TRUE(rig.tenants.set_frozen(kOn1, true));
  rig.run_for(1s);
  EXPECT_EQ(gpu.frozen_channels(), 16);
  gpu.is_dead = true;
  rig.run_for(10s);
  EXPECT_FALSE(rig.scheduler->is_lost());
  EXPECT_EQ(gpu.frozen_channels(), 8) << "nobody stays frozen where nothing is known";
  EXPECT_EQ(rig.scheduler->state().gpu_problems[1],
            "GPU 1 does not answer: ask the GPU: Input/output error");
  const std::string said = read_record(rig.region->agent)->observe_only_reason;
  EXPECT_TRUE(said.starts_with(rig.scheduler->state().gpu_problems[1] + ", for ")) << said;
  EXPECT_TRUE(said.ends_with(" s")) << said;
  gpu.reads = 0;
  rig.run_for(600s);
  EXPECT_GE(gpu.reads, 8);
  EXPECT_LE(gpu.reads, 20);
  gpu.is_dead = false;
  rig.run_for(61s);
  EXPECT_EQ(rig.scheduler->state().gpu_problems[1], "");
  EXPECT_EQ(gpu.frozen_channels(), 16);
}

TEST(Scheduler, AGpuWithoutALogIsDrivenAgainWhenItsDriverComesBack) {
  test::FakeGpu gpu;
  gpu.support_mut().has_switch_log = false;
  test::FakeSchedulerRig rig;
  bool comes_back = false;
  uint32_t half_steps = 1;  // a call begins
  const test::QueuePace pace{
      .below = [&](uint32_t) { return comes_back ? 2U : std::exchange(half_steps, 0U); },
      .may_stall = false};
  rig.make_line = test::queued_lines(pace);
  ASSERT_TRUE(Ledger(*rig.region).note_slice({.pid = 1, .start_ticks = 1}, 3, 2048));
  rig.start(gpu);
  rig.clock.advance(DriverLine::kStuck);
  rig.scheduler->step();
  EXPECT_NE(rig.scheduler->state().gpu_problems[0], "");
  comes_back = true;
  rig.run_for(1s);
  EXPECT_EQ(rig.scheduler->state().gpu_problems[0], "");
}

}  // namespace
}  // namespace gpushare
