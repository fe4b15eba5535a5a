// SPDX-License-Identifier: Apache-2.0
// What tenants that are above others mean for these, on a simulated GPU in virtual time.
#include <gtest/gtest.h>

#include "sched/step/views.h"
#include "sched/tenants/tenants.h"
#include "tests/sched/support/scheduler_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::kPoint;
using test::SchedulerRig;

class TenantTreeSystem : public testing::Test {
 protected:
  void make(const std::string& name, std::vector<Setting> settings = {}) {
    ASSERT_TRUE(rig.tenants.set(name, settings, /*create=*/true)) << name;
  }
  void set(const std::string& name, std::vector<Setting> settings) {
    ASSERT_TRUE(rig.tenants.set(name, settings, /*create=*/false)) << name;
  }
  void expect_shares(const std::vector<double>& wanted, double tolerance = kPoint) {
    const auto found = rig.measure(3s);
    double sum = 0;
    for (const double share : found) sum += share;
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(found[i] / sum, wanted[i], tolerance) << "program " << i;
  }

  SchedulerRig rig;
};

TEST_F(TenantTreeSystem, WeightsHoldAtEachPlaceOfTheTree) {
  rig.start();
  make("team", {{"weight", "300"}});
  rig.add_busy("team/a", {{"weight", "100"}});
  rig.add_busy("team/b", {{"weight", "200"}});
  rig.add_busy("lab", {});
  rig.run_for(2s);
  expect_shares({0.25, 0.5, 0.25});
  EXPECT_EQ(rig.record(*rig.programs[1]).target_permille, 500u);
  // However many there are below, a team has what it has.
  rig.add_busy("team/c", {{"weight", "300"}});
  rig.run_for(2s);
  expect_shares({0.125, 0.25, 0.25, 0.375});
}

TEST_F(TenantTreeSystem, ACapOfOneAboveBindsAllBelowTogether) {
  rig.start();
  make("team", {{"max", "30%"}});
  rig.add_busy("team/a", {{"weight", "100"}});
  rig.add_busy("team/b", {{"weight", "200"}});
  rig.run_for(2s);
  const auto alone = rig.measure(3s);
  // Residence binds; of it a part goes into the change between the two.
  EXPECT_NEAR(
      rig.record(*rig.programs[0]).share_permille + rig.record(*rig.programs[1]).share_permille,
      300, 12);
  EXPECT_NEAR(alone[1] / alone[0], 2, 0.1);
  EXPECT_EQ(rig.record(*rig.programs[0]).target_permille, 100u);
  rig.add_busy("lab", {});
  rig.run_for(2s);
  const auto beside = rig.measure(3s);
  EXPECT_NEAR(
      rig.record(*rig.programs[0]).share_permille + rig.record(*rig.programs[1]).share_permille,
      300, 12);
  EXPECT_GT(beside[2], 0.65);
}

TEST_F(TenantTreeSystem, ACapBelowHoldsWithinTheOneAbove) {
  rig.start();
  make("team", {{"max", "50%"}});
  rig.add_busy("team/a", {{"max", "10%"}});
  rig.add_busy("team/b", {});
  rig.run_for(2s);
  (void)rig.measure(3s);
  EXPECT_NEAR(rig.record(*rig.programs[0]).share_permille, 100, 10);
  EXPECT_NEAR(rig.record(*rig.programs[1]).share_permille, 400, 12);
}

TEST_F(TenantTreeSystem, AClassOfOneAboveIsTheHighestBelow) {
  rig.start();
  make("batch", {{"priority", "idle"}});
  rig.add_busy("batch/a", {{"priority", "high"}});
  rig.add_busy("front", {});
  rig.run_for(1s);
  const auto shares = rig.measure(2s);
  EXPECT_GT(shares[1], 0.9);
  set("batch", {{"priority", "high"}});
  rig.run_for(1s);
  EXPECT_GT(rig.measure(2s)[0], 0.9);
}

TEST_F(TenantTreeSystem, AFreezeOfOneAboveStopsAllBelow) {
  rig.start();
  make("team");
  rig.add_busy("team/a", {});
  rig.add_busy("lab", {});
  rig.run_for(1s);
  ASSERT_TRUE(rig.tenants.set_frozen("team", true));
  rig.run_for(100ms);
  const auto frozen = rig.measure(1s);
  EXPECT_EQ(frozen[0], 0);
  EXPECT_GT(frozen[1], 0.99);
  EXPECT_EQ(rig.record(*rig.programs[0]).state, ProcessState::kFrozenUser);
  EXPECT_TRUE(rig.tenant("team/a").frozen_by_user);
  const auto thawed = rig.tenants.set_frozen(rig.programs[0]->process, false);
  ASSERT_FALSE(thawed);
  EXPECT_NE(thawed.error().message().find("'team'"), std::string::npos) << thawed.error().message();
  ASSERT_TRUE(rig.tenants.set_frozen("team", false));
  rig.run_for(1s);
  EXPECT_GT(rig.measure(1s)[0], 0.4);
}

// A tenant below with a cap of its own for each program is not a cap for each.
TEST_F(TenantTreeSystem, NewTenantsBelowACapEscapeNothing) {
  rig.start();
  make("team", {{"max", "20%"}});
  rig.add_busy("lab", {});
  for (int i = 0; i < 10; ++i) {
    rig.add_busy("team/" + std::to_string(i), {{"max", "100%"}, {"weight", "10000"}});
    rig.run_for(100ms);
  }
  const auto shares = rig.measure(5s);
  double of_team = 0;
  for (size_t i = 1; i < shares.size(); ++i) of_team += shares[i];
  EXPECT_LT(of_team, 0.21);
  EXPECT_GT(shares[0], 0.7);
}

// A job that waits at a gate keeps no context busy, and has its part of the tree all the same.
TEST(TenantTree, JobsThatWaitHaveTheirWeights) {
  const auto region = std::make_unique<Region>();
  Tenants tenants;
  ASSERT_TRUE(tenants.set("team", std::vector<Setting>{{"weight", "300"}}, true));
  const uint32_t a = tenants.set("team/a", std::vector<Setting>{{"weight", "50"}}, true).value();
  const uint32_t b = tenants.set("team/b", std::vector<Setting>{{"weight", "100"}}, true).value();
  const uint32_t lab = tenants.set("lab", std::vector<Setting>{{"weight", "100"}}, true).value();
  Views views;
  std::vector<JobView> jobs;
  for (const uint32_t tenant : {a, b, lab}) {
    const uint32_t id = tenant + 1;
    views.add({.id = id,
               .process = {static_cast<pid_t>(id), 1},
               .tenant = tenant,
               .wants_gpu = tenant == a});
    JobView& job = jobs.emplace_back();
    job.id = id;
    job.tenant = tenant;
    job.wants_gpu = true;
  }
  views.add_tenants(0, tenants, *region, nullptr);
  views.set_jobs(jobs, [](const ProcessId& process) { return static_cast<uint64_t>(process.pid); });
  const double sum = jobs[0].weight + jobs[1].weight + jobs[2].weight;
  EXPECT_NEAR(sum, 250, 1e-6) << "the scale is that of the settings";
  EXPECT_NEAR(jobs[0].weight / sum, 0.25, 1e-6);
  EXPECT_NEAR(jobs[1].weight / sum, 0.5, 1e-6);
  EXPECT_NEAR(jobs[2].weight / sum, 0.25, 1e-6);
}

// Who has had its turn is ahead by a time in proportion to weights: their scale must not change
// with a tenant below another that comes and has nothing to do with it.
TEST_F(TenantTreeSystem, ATreeThatComesStarvesNobody) {
  rig.start();
  make("team");
  rig.add_busy("one", {{"priority", "idle"}});
  rig.add_busy("two", {{"priority", "idle"}});
  rig.add_busy("front", {});
  rig.run_for(1s);
  rig.scheduler->step();
  rig.machine.model.close_client(rig.programs[2]->client);
  rig.work[2] = 0;
  rig.run_for(230ms);
  rig.add("team/x", {{"priority", "idle"}});
  rig.run_for(300ms);
  const auto shares = rig.measure(2s);
  EXPECT_NEAR(shares[0], 0.5, 0.1);
  EXPECT_NEAR(shares[1], 0.5, 0.1);
}

// Each of the tenants below would be believed once, the cap above them is told all of it.
TEST_F(TenantTreeSystem, TenantsBelowACapAreBelievedOnceTogether) {
  rig.start();
  make("team", {{"max", "10%"}});
  Nanos had{};
  const Time began = rig.machine.model.now();
  for (int i = 0; i < 20; ++i) {
    const std::string name = "team/" + std::to_string(i);
    sim::Program& program = rig.add_busy(name, {});
    const uint64_t work = rig.work.back();
    rig.run_for(500ms);
    had += program.executed(work);
    rig.machine.model.close_client(program.client);
    rig.work.back() = 0;
    rig.run_for(20ms);
    ASSERT_TRUE(rig.tenants.remove(name));
  }
  EXPECT_LT(std::chrono::duration<double>(had) / (rig.machine.model.now() - began), 0.12);
}

TEST(TenantTree, AnOneBelowNeedsTheOneAbove) {
  Tenants tenants;
  const auto without = tenants.set("team/a", {}, true);
  ASSERT_FALSE(without);
  EXPECT_EQ(without.error().code, std::errc::no_such_file_or_directory);
  ASSERT_TRUE(tenants.set("team", {}, true));
  ASSERT_TRUE(tenants.set("team/a", {}, true));
  const auto busy = tenants.remove("team");
  ASSERT_FALSE(busy);
  EXPECT_EQ(busy.error().code, std::errc::device_or_resource_busy);
  ASSERT_TRUE(tenants.remove("team/a"));
  EXPECT_TRUE(tenants.remove("team"));
}

TEST(TenantTree, WhatIsInARemovedOneIsInTheOneAbove) {
  Tenants tenants;
  const ProcessId process{100, 1};
  for (const char* name : {"team", "team/a"}) ASSERT_TRUE(tenants.set(name, {}, true));
  ASSERT_TRUE(tenants.attach(process, "team/a"));
  ASSERT_TRUE(tenants.remove("team/a"));
  EXPECT_EQ(tenants.tenant_of(process), *tenants.find("team"));
  ASSERT_TRUE(tenants.remove("team"));
  EXPECT_EQ(tenants.tenant_of(process), kDefaultTenant);
}

// One that the file does not name any more stays while somebody who stays is below it.
TEST(TenantTree, WhatTheFileNoLongerNamesStaysAboveWhatStays) {
  Tenants tenants;
  TenantsConfig config;
  config.tenants = {{"team", {{"weight", "300"}}}, {"gone", {}}};
  ASSERT_TRUE(tenants.start(config));
  ASSERT_TRUE(tenants.set("team/a", {}, true));
  ASSERT_TRUE(tenants.reload({}));
  EXPECT_FALSE(tenants.find("gone"));
  ASSERT_TRUE(tenants.find("team"));
  EXPECT_EQ(tenants.at(*tenants.find("team/a"))->above,
            (std::vector<uint32_t>{*tenants.find("team")}));
  EXPECT_EQ(tenants.at(*tenants.find("team"))->settings.weight, 100u);
}

TEST(TenantTree, IsTakenOverByTheNextAgentInAnyOrderOfSlots) {
  const auto region = std::make_unique<Region>();
  Roster roster(*region);
  {
    Tenants tenants(&roster);
    ASSERT_TRUE(tenants.set("x", {}, true));
    ASSERT_TRUE(tenants.set("team", {}, true));
    ASSERT_TRUE(tenants.remove("x"));
    tenants.reuse_slots();
    ASSERT_TRUE(tenants.set("team/a", {}, true));  // in the slot before that of "team"
    ASSERT_LT(*tenants.find("team/a"), *tenants.find("team"));
    ASSERT_TRUE(tenants.set_frozen("team", true));
  }
  Tenants next(&roster);
  ASSERT_TRUE(next.find("team/a"));
  const Tenant& below = *next.at(*next.find("team/a"));
  EXPECT_EQ(below.above, (std::vector<uint32_t>{*next.find("team")}));
  EXPECT_TRUE(below.is_frozen);
  EXPECT_FALSE(below.is_frozen_by_user);
}

}  // namespace
}  // namespace gpushare
