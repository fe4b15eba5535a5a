// SPDX-License-Identifier: Apache-2.0
// `fifo` in the whole agent less its event loop, in virtual time: programs without the shim, which
// are stopped by freezes. How it orders jobs is tested in tests/sched/orders.
#include <gtest/gtest.h>

#include "tests/sched/support/scheduler_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

class FifoInTheAgent : public ::testing::Test {
 protected:
  FifoInTheAgent() { rig_.start(true, "[gpu.0]\npolicy = 'fifo'\n"); }
  // One after the other, so that it is known which came first.
  void add_busy(const std::string& tenant, std::vector<Setting> settings = {}) {
    rig_.add_busy(tenant, std::move(settings));
    rig_.run_for(200ms);
  }

  test::SchedulerRig rig_;
};

TEST_F(FifoInTheAgent, TheFirstJobRunsAloneAndTheNextOneWhenItHasEnded) {
  for (const char* tenant : {"a", "b", "c"}) add_busy(tenant);
  rig_.run_for(1s);
  for (const std::size_t waiting : {1, 2}) {
    const ProcessRecord record = rig_.record(*rig_.programs[waiting]);
    EXPECT_EQ(record.state, ProcessState::kFrozenTurn);
    EXPECT_EQ(record.job_place, waiting + 1);
    EXPECT_STREQ(record.note, "turn of pid-100");
  }
  auto shares = rig_.measure(1s);
  EXPECT_GT(shares[0], 0.99);
  EXPECT_EQ(shares[1] + shares[2], 0);
  rig_.machine.model.close_client(rig_.programs[0]->client);
  rig_.work[0] = 0;
  rig_.run_for(200ms);
  shares = rig_.measure(1s);
  EXPECT_GT(shares[1], 0.99);
  EXPECT_STREQ(rig_.record(*rig_.programs[1]).note, "");
}

TEST_F(FifoInTheAgent, AHigherClassGoesFirst) {
  add_busy("a");
  add_busy("b", {{"priority", "high"}});
  rig_.run_for(1s);
  const auto shares = rig_.measure(1s);
  EXPECT_EQ(shares[0], 0);
  EXPECT_GT(shares[1], 0.99);
}

TEST_F(FifoInTheAgent, TheUsersFreezeHoldsAndTheNextOneRunsMeanwhile) {
  add_busy("a");
  add_busy("b");
  ASSERT_TRUE(rig_.tenants.set_frozen("a", true));
  rig_.run_for(500ms);
  EXPECT_EQ(rig_.record(*rig_.programs[0]).state, ProcessState::kFrozenUser);
  auto shares = rig_.measure(1s);
  EXPECT_EQ(shares[0], 0);
  EXPECT_GT(shares[1], 0.99);
  ASSERT_TRUE(rig_.tenants.set_frozen("a", false));
  rig_.run_for(500ms);
  EXPECT_GT(rig_.measure(1s)[0], 0.99) << "it is still the one that came first";
}

TEST(FifoOnOneGpu, AReloadChangesThePolicyOfOneGpuWhileProgramsRun) {
  test::SchedulerRig rig(2);
  rig.start(true, "[gpu.0]\npolicy = 'fifo'\n");
  for (const uint32_t gpu : {0U, 0U, 1U, 1U}) {
    rig.add_busy("t" + std::to_string(rig.programs.size()), {}, gpu);
    rig.run_for(150ms);
  }
  rig.run_for(1s);
  auto shares = rig.measure(1s);
  EXPECT_GT(shares[0], 0.99);
  EXPECT_NEAR(shares[2] / (shares[2] + shares[3]), 0.5, 0.02) << "the other GPU is fair";
  rig.scheduler->configure(test::parse("").value());
  rig.run_for(1s);
  shares = rig.measure(1s);
  EXPECT_NEAR(shares[0] / (shares[0] + shares[1]), 0.5, 0.02);
}

}  // namespace
}  // namespace gpushare
