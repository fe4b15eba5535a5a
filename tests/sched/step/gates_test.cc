// SPDX-License-Identifier: Apache-2.0
// The scheduler beside somebody who holds processes to their caps in its place.
#include <gtest/gtest.h>

#include <set>

#include "tests/sched/support/no_shims.h"
#include "tests/sched/support/scheduler_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::SchedulerRig;

// Programs of a rig that somebody else holds to their caps, or that serve others.
struct Beside final : public test::NoShims, public MpsServers {
  explicit Beside(SchedulerRig& rig) {
    rig.shims = this;
    rig.mps = this;
  }
  bool is_gated(const ProcessId& process) const override { return gated.contains(process); }
  bool is_server(const ProcessId& process) const override { return serving.contains(process); }
  MpsStatus status() const override { return {}; }

  std::set<ProcessId> gated, serving;
};

// Two busy programs of one capped tenant run for a second, the first of them among `special`.
void run_two(SchedulerRig& rig, std::set<ProcessId>& special) {
  rig.start();
  rig.add_busy("capped", {{"max", "30%"}});
  rig.add_busy("capped", {});
  special.insert(rig.programs[0]->process);
  rig.run_for(1s);
}

TEST(SchedulerBesideGates, WhoIsHeldAtItsGateIsNeitherChargedNorFrozenForItsCap) {
  SchedulerRig rig;
  Beside beside(rig);
  rig.start();
  rig.add_busy("capped", {{"max", "30%"}});
  beside.gated.insert(rig.programs[0]->process);
  rig.run_for(1s);
  EXPECT_GT(rig.measure(2s)[0], 0.99);
  EXPECT_EQ(rig.record(*rig.programs[0]).freezes, 0u);
  // Somebody else charges it: still not ours to freeze.
  rig.region->tenants[*rig.tenants.find("capped")].buckets[0].charge(10s);
  EXPECT_GT(rig.measure(2s)[0], 0.99);
}

TEST(SchedulerBesideGates, OthersOfItsTenantAreFrozenWhenTheTokensAreUsedUp) {
  SchedulerRig rig;
  Beside beside(rig);
  run_two(rig, beside.gated);
  rig.region->tenants[*rig.tenants.find("capped")].buckets[0].charge(10s);
  const auto shares = rig.measure(2s);
  EXPECT_GT(shares[0], 0.95);
  EXPECT_LT(shares[1], 0.05);
}

// A server of MPS: the switch log gives its clients' time to it, whose tenant is not theirs.
TEST(SchedulerBesideGates, WhoServesOthersIsNeitherChargedNorFrozen) {
  SchedulerRig rig;
  Beside beside(rig);
  run_two(rig, beside.serving);
  ASSERT_TRUE(rig.tenants.set_frozen("capped", true));
  const auto shares = rig.measure(2s);
  EXPECT_GT(shares[0], 0.95);
  EXPECT_LT(shares[1], 0.05);
  EXPECT_EQ(rig.record(*rig.programs[0]).freezes, 0u);
}

TEST(SchedulerBesideGates, AUserStillFreezesIt) {
  SchedulerRig rig;
  Beside beside(rig);
  rig.start();
  rig.add_busy("a", {});
  beside.gated.insert(rig.programs[0]->process);
  rig.run_for(1s);
  ASSERT_TRUE(rig.tenants.set_frozen(rig.programs[0]->process, true));
  rig.run_for(200ms);
  EXPECT_LT(rig.measure(1s)[0], 0.01);
}

}  // namespace
}  // namespace gpushare
