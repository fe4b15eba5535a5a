// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/takeover.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "shmctl/plane/snapshot.h"
#include "tests/sched/support/scheduler_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

// An agent works on a region in shared memory, dies, and another takes over.
class TakeoverTest : public ::testing::Test {
 protected:
  TakeoverTest()
      : plane_(ControlPlane::create("/gpushare-test-" + std::to_string(::getpid())).value()) {}
  ~TakeoverTest() override { (void)ControlPlane::remove(plane_.name()); }

  void live_and_die() {
    scheduler_ = std::make_unique<Scheduler>(Surroundings{.gpu = rig_.gpu,
                                                          .observer = &rig_.observer,
                                                          .region = plane_.region(),
                                                          .processes = rig_.processes,
                                                          .clock = rig_.clock,
                                                          .tenants = rig_.tenants},
                                             AgentIdentity{.agent_pid = 1, .is_simulated = true},
                                             Config(test::every_policy()));
    scheduler_->step();
    scheduler_.reset();
  }

  // What the next agent has, which begins with this configuration.
  Tenants take_over(const TenantsConfig& config = {}) {
    Tenants next;
    EXPECT_TRUE(next.reload(config));
    DirectControl control(next);
    take_over_tenants(plane_, rig_.processes, next, control);
    return next;
  }
  sim::Program& add_transient() {
    sim::Program& program = rig_.add("default", {});
    const std::vector<Setting> heavy{{"weight", "300"}};
    EXPECT_TRUE(rig_.tenants.create_transient(program.process, heavy));
    return program;
  }

  test::SchedulerRig rig_;
  ControlPlane plane_;
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(TakeoverTest, SettingsMadeAtRunTimeAndTheirProcessesAreTakenOver) {
  rig_.add_busy("batch", {{"weight", "50"}, {"max", "20%"}, {"priority", "idle"}});
  ASSERT_TRUE(rig_.tenants.set_frozen("batch", true));
  live_and_die();
  Tenants next = take_over();
  const auto slot = next.find("batch");
  ASSERT_TRUE(slot);
  EXPECT_EQ(next.at(*slot)->settings, rig_.tenants.at(*rig_.tenants.find("batch"))->settings);
  EXPECT_TRUE(next.at(*slot)->is_frozen_by_user);
  EXPECT_EQ(next.tenant_of(rig_.programs[0]->process), *slot);
}

TEST_F(TakeoverTest, ATransientTenantStillGoesWithItsLastProcess) {
  sim::Program& program = add_transient();
  live_and_die();
  Tenants next = take_over();
  const uint32_t slot = next.tenant_of(program.process);
  EXPECT_TRUE(next.at(slot)->is_transient);
  EXPECT_EQ(next.at(slot)->settings.weight, 300u);
  next.end_process(program.process);
  EXPECT_EQ(next.slots().size(), 1u);
}

TEST_F(TakeoverTest, ATransientTenantWhoseProcessesEndedIsNotTakenOver) {
  sim::Program& program = add_transient();
  live_and_die();
  rig_.processes.dead[program.process.pid] = true;
  Tenants next = take_over();
  EXPECT_EQ(next.slots().size(), 1u);
}

TEST_F(TakeoverTest, ThePresentFileWinsWhereNothingWasSetAtRunTime) {
  live_and_die();
  TenantsConfig config;
  config.tenants.push_back({"web", {{"weight", "200"}}});
  const Tenants next = take_over(config);
  EXPECT_EQ(next.at(next.find("web").value())->settings.weight, 200u);
}

TEST_F(TakeoverTest, AnAgentThatStoppedByItselfLeavesNothing) {
  rig_.add_busy("batch", {{"weight", "50"}});
  live_and_die();
  clear_records(plane_.region());
  Tenants next = take_over();
  EXPECT_EQ(next.slots().size(), 1u);
  EXPECT_TRUE(take_snapshot(plane_)->processes.empty());
}

}  // namespace
}  // namespace gpushare
