// SPDX-License-Identifier: Apache-2.0
// Ranks that were started apart and meet in every step, beside a busy program on each of two
// simulated GPUs, in real time. What their steps come to is held to figures in virtual time
// (tests/sched/gangs); here it is held that turns are taken, that all go on, and that nobody stays
// held.
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "tests/sched/system/system_rig.h"

namespace gpushare::test {
namespace {

class GangSystem : public ::testing::Test {
 protected:
  GangSystem() : rig_("[tenant.ranks]\ngang = true\n", 2) {
    rig_.start_agent();
    for (const int gpu : {0, 1}) {
      ranks_.push_back(rig_.run({"--tenant", "ranks"}, {build_folder() + "/bin/tests/sim_rank",
                                                        std::to_string(gpu), "7", "2", file(gpu)}));
      std::vector<std::string> busy = kSaturating;
      busy.insert(busy.end(), {"--device", std::to_string(gpu)});
      others_.push_back(rig_.start("spin", busy));
    }
  }
  std::string file(int gpu) const { return rig_.folder + "/steps." + std::to_string(gpu); }
  uint64_t steps(int gpu) const {
    uint64_t steps = 0;
    std::ifstream(file(gpu), std::ios::binary).read(reinterpret_cast<char*>(&steps), sizeof steps);
    return steps;
  }
  // False: no more steps are made.
  bool goes_on() const {
    const uint64_t before = steps(0);
    return eventually([&] { return steps(0) > before + 20 && steps(1) > before + 20; });
  }
  bool waits_for_the_gang(int gpu) const {
    const ProcessRecord record =
        rig_.record(others_[static_cast<std::size_t>(gpu)]->pid(), static_cast<uint32_t>(gpu));
    return std::string(record.note).find("gang turn of tenant ranks") != std::string::npos;
  }

  SystemRig rig_;
  std::vector<std::unique_ptr<Child>> ranks_, others_;
};

TEST_F(GangSystem, RanksOfSeveralRunsTakeTurnsWithTheirNeighbours) {
  for (const int gpu : {0, 1})
    EXPECT_TRUE(eventually([&] { return waits_for_the_gang(gpu); })) << "GPU " << gpu;
  EXPECT_TRUE(goes_on());
  for (const int gpu : {0, 1}) {
    const pid_t other = others_[static_cast<std::size_t>(gpu)]->pid();
    const auto used = [&] { return rig_.record(other, static_cast<uint32_t>(gpu)).gpu_time_ns; };
    const uint64_t before = used();
    EXPECT_TRUE(eventually([&] { return used() > before; })) << "it has its turns, too";
  }
}

TEST_F(GangSystem, WhenAgentAndSupervisorDieNobodyIsHeld) {
  ASSERT_TRUE(eventually([&] { return waits_for_the_gang(0) || waits_for_the_gang(1); }));
  const pid_t agent = rig_.agent_pid();
  rig_.gpushared->signal(SIGKILL);
  ::kill(agent, SIGKILL);
  ASSERT_TRUE(eventually([&] { return rig_.run_gpushared({"--recover"}) == 0; }));
  EXPECT_TRUE(goes_on());
}

}  // namespace
}  // namespace gpushare::test
