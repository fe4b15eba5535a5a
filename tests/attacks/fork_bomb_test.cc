// SPDX-License-Identifier: Apache-2.0
// A tenant that starts processes without end: the agent goes on, and what it remembers of others
// outlives it. How the entries run out is in tests/sched/tenants/takeover_test.cc.
// GPUSHARE_TEST_PROCESSES is how many there are (150); more than 16,384 fill the roster.
#include <gtest/gtest.h>

#include <signal.h>
#include <algorithm>

#include "shmctl/plane/roster.h"
#include "tests/sched/system/system_rig.h"
#include "tests/support/given.h"

namespace gpushare {
namespace {

using test::SystemRig;

TEST(ForkBomb, TheNextAgentKnowsWhoBelongsWhere) {
  const auto processes =
      static_cast<std::size_t>(test::number_given("GPUSHARE_TEST_PROCESSES", 150));
  SystemRig rig("");
  rig.start_agent();
  const auto other = rig.start_run({"--weight", "300"}, "workloads/endless", {"--seconds", "1000"});
  const auto tenant_of_other = [&] {
    const ProcessRecord record = rig.record(other->pid());
    for (const auto& [slot, tenant] : rig.snapshot().tenants)
      if (record.pid != 0 && slot == record.tenant) return std::string(tenant.name);
    return std::string();
  };
  const std::string wanted = "run-" + std::to_string(other->pid());
  ASSERT_TRUE(eventually([&] { return tenant_of_other() == wanted; }));
  const auto bomb = rig.start_run({"--max", "10%"}, "attacks/fork_bomb",
                                  {"--children", std::to_string(processes)});
  ASSERT_TRUE(eventually([&] { return rig.output("run.log").contains("\"children\""); },
                         std::chrono::minutes(10)))
      << rig.output("run.log");

  const auto plane = ControlPlane::open_read_only(rig.region);
  ASSERT_TRUE(plane);
  const auto of_bomb = [&] {
    return std::ranges::count_if(plane->region().roster_processes, [](const auto& slot) {
      return (read_record(slot)->flags & kRosterInherited) != 0;
    });
  };
  const auto all =
      static_cast<std::ptrdiff_t>(std::min<std::size_t>(processes, kMaxRosterProcesses - 2));
  // They have nothing on the GPU any more, so that the next agent would not meet one of which this
  // one has not read yet, until it uses the GPU again.
  ASSERT_TRUE(eventually([&] { return of_bomb() == all; }, std::chrono::minutes(5)))
      << of_bomb() << " of " << all;

  const pid_t agent = rig.agent_pid();
  ::kill(agent, SIGKILL);
  EXPECT_TRUE(eventually([&] { return rig.agent_pid() != 0 && rig.agent_pid() != agent; }));
  EXPECT_TRUE(eventually([&] { return tenant_of_other() == wanted; }));
  EXPECT_EQ(of_bomb(), all);
}

}  // namespace
}  // namespace gpushare
