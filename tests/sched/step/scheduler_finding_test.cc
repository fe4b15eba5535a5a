// SPDX-License-Identifier: Apache-2.0
// How programs are found that no event told of, and whose they are, on a simulated GPU in virtual
// time.
#include "sched/step/scheduler.h"

#include <gtest/gtest.h>

#include "tests/sched/support/scheduler_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::SchedulerRig;

constexpr double kPoint = 0.01;

TEST(SchedulerFinding, AProgramThatWasThereBeforeIsItsUsersAndNotRoots) {
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

TEST(SchedulerFinding, WhatEndedWhileTheGpusWereLostIsSeenToHaveEnded) {
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

TEST(SchedulerFinding, FindsProgramsThatWereThereBefore) {
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

TEST(SchedulerFinding, FindsProgramsWithoutAnObserver) {
  SchedulerRig rig;
  rig.start(/*with_observer=*/false);
  rig.run_for(100ms);
  rig.add_busy("a", {});
  rig.run_for(1500ms);
  EXPECT_EQ(rig.record(*rig.programs[0]).pid, rig.programs[0]->process.pid);
}

TEST(SchedulerFinding, LooksAgainAfterEventsWereLost) {
  SchedulerRig rig;
  rig.start();
  rig.run_for(100ms);
  rig.add_busy("a", {});
  rig.observer.lose_pending();
  rig.run_for(500ms);  // finding it takes 100 ms of work, in steps of half a millisecond
  EXPECT_EQ(rig.record(*rig.programs[0]).pid, rig.programs[0]->process.pid);
}

TEST(SchedulerFinding, LooksAtWhoUsesTheDriverAndWasNotSeenToMakeAGroup) {
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

TEST(SchedulerFinding, ARuleByUserHoldsAlsoWhenTheNameServiceIsLate) {
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

// A program can rewrite the arguments of its calls before the probe reads them, so that no event

TEST(SchedulerFinding, WhoRunsUnseenIsFoundByTheSwitchLog) {
  SchedulerRig rig;
  rig.run_busy({{"a", {}}}, 1s);
  rig.add_busy("hidden", {{"max", "20%"}});
  ASSERT_TRUE(rig.observer.drain([](DriverEvent&&) {}));
  rig.run_for(3s);
  EXPECT_NE(rig.record(*rig.programs[1]).pid, 0) << "it is known";
  EXPECT_NEAR(rig.measure(5s)[1], 0.2, 0.02) << "and held to its cap";
}

}  // namespace
}  // namespace gpushare
