// SPDX-License-Identifier: Apache-2.0
// The scheduler beside somebody who holds processes to their caps in its place.
#include <gtest/gtest.h>

#include "tests/sched/support/scheduler_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::SchedulerRig;

TEST(SchedulerBesideGates, WhoIsHeldAtItsGateIsNeitherChargedNorFrozenForItsCap) {
  SchedulerRig rig;
  rig.start();
  rig.add_busy("capped", {{"max", "30%"}});
  rig.scheduler->set_gated(
      [&](const ProcessId& process) { return process == rig.programs[0]->process; });
  rig.run_for(1s);
  EXPECT_GT(rig.measure(2s)[0], 0.99);
  EXPECT_EQ(rig.record(*rig.programs[0]).freezes, 0u);
  // Somebody else charges it: still not ours to freeze.
  rig.region->tenants[*rig.tenants.find("capped")].buckets[0].charge(10s);
  EXPECT_GT(rig.measure(2s)[0], 0.99);
}

TEST(SchedulerBesideGates, OthersOfItsTenantAreFrozenWhenTheTokensAreUsedUp) {
  SchedulerRig rig;
  rig.start();
  rig.add_busy("capped", {{"max", "30%"}});
  rig.add_busy("capped", {});
  rig.scheduler->set_gated(
      [&](const ProcessId& process) { return process == rig.programs[0]->process; });
  rig.run_for(1s);
  rig.region->tenants[*rig.tenants.find("capped")].buckets[0].charge(10s);
  const auto shares = rig.measure(2s);
  EXPECT_GT(shares[0], 0.95);
  EXPECT_LT(shares[1], 0.05);
}

// A server of MPS: the switch log gives its clients' time to it, whose tenant is not theirs.
TEST(SchedulerBesideGates, WhoServesOthersIsNeitherChargedNorFrozen) {
  SchedulerRig rig;
  rig.start();
  rig.add_busy("capped", {{"max", "30%"}});
  rig.add_busy("capped", {});
  rig.scheduler->set_serving(
      [&](const ProcessId& process) { return process == rig.programs[0]->process; });
  rig.run_for(1s);
  ASSERT_TRUE(rig.tenants.set_frozen("capped", true));
  const auto shares = rig.measure(2s);
  EXPECT_GT(shares[0], 0.95);
  EXPECT_LT(shares[1], 0.05);
  EXPECT_EQ(rig.record(*rig.programs[0]).freezes, 0u);
}

TEST(SchedulerBesideGates, AUserStillFreezesIt) {
  SchedulerRig rig;
  rig.start();
  rig.add_busy("a", {});
  rig.scheduler->set_gated([](const ProcessId&) { return true; });
  rig.run_for(1s);
  ASSERT_TRUE(rig.scheduler->set_frozen(rig.programs[0]->process.pid, true));
  rig.run_for(200ms);
  EXPECT_LT(rig.measure(1s)[0], 0.01);
}

}  // namespace
}  // namespace gpushare
