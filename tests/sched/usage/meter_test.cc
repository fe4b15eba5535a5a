// SPDX-License-Identifier: Apache-2.0
#include "sched/usage/meter.h"

#include <gtest/gtest.h>

#include <cstring>

namespace gpushare {
namespace {

constexpr Time kStart{1000s};
constexpr int64_t kWall = 1'800'000'000'000;

// Two tenants on a GPU; the first has a process, and more that ended unseen.
struct Machine {
  PlaneSnapshot snapshot;
  UsageMeter meter;
  int seconds = 0;

  Machine() {
    snapshot.gpus.resize(1);
    std::strcpy(snapshot.gpus[0].name, "H200");
    TenantRecord tenant;
    std::strcpy(tenant.name, "a");
    tenant.priority = Priority::kHigh;
    snapshot.tenants.push_back({.slot = 3, .record = tenant});
    ProcessRecord process;
    process.pid = 100;
    process.start_ticks = 5;
    process.uid = 1000;
    process.tenant = 3;
    process.state = ProcessState::kRunning;
    process.target_permille = 500;
    std::strcpy(process.command, "train");
    snapshot.processes.push_back({.slot = 0, .record = process});
  }
  ProcessRecord& process() { return snapshot.processes[0].record; }
  uint64_t& tenant_time() { return snapshot.tenants[0].record.gpu[0].gpu_time_ns; }
  void look() {
    meter.look(snapshot, kStart + std::chrono::seconds(seconds), kWall + 1000LL * seconds);
    ++seconds;
  }
  void run(uint64_t process_ms, uint64_t tenant_ms) {
    process().gpu_time_ns += process_ms * 1'000'000;
    tenant_time() += tenant_ms * 1'000'000;
    look();
  }
};

const UsageSeries kOwn{.tenant = "a", .uid = 1000, .gpu = 0, .priority = 2};
const UsageSeries kRest{.tenant = "a", .uid = kNoUser, .gpu = 0, .priority = 2};

TEST(UsageMeter, WhatWasBeforeTheFirstLookIsNotCounted) {
  Machine machine;
  machine.run(5000, 9000);
  EXPECT_TRUE(machine.meter.take().sample.amounts.empty());
}

TEST(UsageMeter, CountsProcessesAndWhatTheTenantHadBesides) {
  Machine machine;
  machine.look();
  for (int i = 0; i < 10; ++i) machine.run(400, 450);
  const UsageWrite taken = machine.meter.take();
  EXPECT_EQ(taken.sample.watched_ms, 10'000U);
  EXPECT_EQ(taken.sample.amounts.at(kOwn).used_ms, 4000U);
  EXPECT_EQ(taken.sample.amounts.at(kOwn).entitled_ms, 5000U);
  EXPECT_EQ(taken.sample.amounts.at(kRest).used_ms, 500U);
  const UsageJob job{.name = "pid-100", .command = "train", .tenant = "a", .uid = 1000};
  EXPECT_EQ(taken.jobs.at(job).used_ms, 4000U);
  EXPECT_TRUE(machine.meter.take().sample.amounts.empty());
}

TEST(UsageMeter, TheClassIsTheOneThatHolds) {
  Machine machine;
  std::strcpy(machine.snapshot.tenants[0].record.name, "team/a");
  TenantRecord team;
  std::strcpy(team.name, "team");
  machine.snapshot.tenants.push_back({.slot = 7, .record = team});  // of the normal class
  machine.look();
  machine.run(400, 450);
  const UsageWrite taken = machine.meter.take();
  const auto used = [&](uint32_t uid, uint32_t priority) {
    const auto found = taken.sample.amounts.find({.tenant = "team/a",
                                                  .uid = uid == 0 ? kNoUser : int64_t{uid},
                                                  .gpu = 0,
                                                  .priority = priority});
    return found == taken.sample.amounts.end() ? 0 : found->second.used_ms;
  };
  EXPECT_EQ(used(1000, 1), 400U);
  EXPECT_EQ(used(0, 1), 50U);
  EXPECT_EQ(used(1000, 2), 0U);
}

TEST(UsageMeter, LosesNoPartOfAMillisecond) {
  Machine machine;
  machine.look();
  uint64_t sum = 0;
  for (int i = 0; i < 1000; ++i) {
    machine.process().gpu_time_ns += 1'700'000;
    machine.tenant_time() += 1'700'000;
    machine.look();
    sum += machine.meter.take().sample.amounts[kOwn].used_ms;
  }
  EXPECT_EQ(sum, 1700U);
}

TEST(UsageMeter, AnotherProcessOfTheSameNumberBeginsAnew) {
  Machine machine;
  machine.run(5000, 5000);
  machine.process().start_ticks = 6;
  machine.process().gpu_time_ns = 0;
  machine.run(200, 200);
  EXPECT_EQ(machine.meter.take().sample.amounts.at(kOwn).used_ms, 200U);
}

TEST(UsageMeter, AnAgentThatCountsFromZeroTakesNothingBack) {
  Machine machine;
  machine.run(5000, 5000);
  machine.process().gpu_time_ns = 0;
  machine.tenant_time() = 0;
  machine.run(300, 300);
  EXPECT_EQ(machine.meter.take().sample.amounts.at(kOwn).used_ms, 300U);
}

// A lost GPU, or an agent whose GPU opens late, publishes none for a while.
TEST(UsageMeter, ALookWithoutAGpuCountsNothingTwice) {
  Machine machine;
  machine.run(5000, 9000);
  machine.run(200, 300);
  const std::vector<GpuRecord> gpus = std::exchange(machine.snapshot.gpus, {});
  const auto processes = std::exchange(machine.snapshot.processes, {});
  for (int i = 0; i < 10; ++i) machine.look();
  machine.snapshot.gpus = gpus;
  machine.snapshot.processes = processes;
  machine.process().gpu_time_ns = 0;  // the agent's new scheduler counts anew
  machine.run(100, 150);
  const UsageWrite taken = machine.meter.take();
  EXPECT_EQ(taken.sample.amounts.at(kOwn).used_ms, 300U);
  EXPECT_EQ(taken.sample.amounts.at(kRest).used_ms, 150U);
}

// It ends its context and makes another one, a task at a time, and its account goes on.
TEST(UsageMeter, AProcessThatIsAwayForALookIsNotCountedAgain) {
  Machine machine;
  machine.look();
  machine.run(400, 400);
  for (int task = 0; task < 10; ++task) {
    const auto processes = std::exchange(machine.snapshot.processes, {});
    machine.look();
    machine.snapshot.processes = processes;
    machine.run(400, 400);
  }
  const UsageWrite taken = machine.meter.take();
  EXPECT_EQ(taken.sample.amounts.at(kOwn).used_ms, 4400U);
  EXPECT_FALSE(taken.sample.amounts.contains(kRest));
}

TEST(UsageMeter, CountsIterationsThatTakeLongerThanALook) {
  Machine machine;
  TenantGpuUse& use = machine.snapshot.tenants[0].record.gpu[0];
  use.latency_us = 1'100'000;
  use.iterations_per_ks = 900;
  use.gpu_time_ns = 1;
  machine.look();
  uint64_t iterations = 0;
  for (int i = 0; i < 100; ++i) {
    machine.look();
    if (i % 10 == 9) iterations += machine.meter.take().sample.amounts.at(kRest).iterations;
  }
  EXPECT_EQ(iterations, 90U);
}

TEST(UsageMeter, AFreezeIsListedWhenItHasEnded) {
  Machine machine;
  machine.look();
  machine.process().state = ProcessState::kFrozenUser;
  machine.process().state_since_ns =
      static_cast<uint64_t>((kStart + 500ms).time_since_epoch().count());
  for (int i = 0; i < 4; ++i) machine.look();
  EXPECT_TRUE(machine.meter.take().freezes.empty());
  machine.process().state = ProcessState::kRunning;
  machine.look();
  const UsageWrite taken = machine.meter.take();
  ASSERT_EQ(taken.freezes.size(), 1U);
  EXPECT_EQ(taken.freezes[0].start_ms, kWall + 500);
  EXPECT_EQ(taken.freezes[0].duration_ms, 3500U);
  EXPECT_EQ(taken.freezes[0].reason, "user");
}

}  // namespace
}  // namespace gpushare
