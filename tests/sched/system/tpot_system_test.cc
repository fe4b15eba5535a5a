// SPDX-License-Identifier: Apache-2.0
// The policy `tpot`, and lending between two requests, with real processes on the simulated GPU.
#include <gtest/gtest.h>
#include <signal.h>

#include "shmctl/shim/slot.h"
#include "tests/sched/system/system_rig.h"

namespace gpushare::test {
namespace {

constexpr const char* kTpotConfig = R"(
[gpu.0]
sharing = "spatial"
policy = "tpot"
[tenant.prompts]
phase = "prefill"
slo_us = 1000000
match = [{command="*--mode serve*"}]
[tenant.model]
match = [{command="*--mode decode*"}]
[tenant.rest]
match = [{command="spin"}]
)";

constexpr uint32_t kOneGroup = 12;  // SMs of the largest

class TpotSystem : public ::testing::Test {
 protected:
  TenantGpuUse part(const std::string& name) const { return rig_.tenant(name).gpu[0]; }
  std::string seen() const {
    const TenantGpuUse prompts = part("prompts"), rest = part("rest");
    return "prompts " + std::to_string(prompts.sms_in_use) + "/" +
           std::to_string(prompts.sms_entitled) + ", rest " + std::to_string(rest.sms_in_use) +
           "/" + std::to_string(rest.sms_entitled) + ", phase " +
           std::to_string(part("model").phase) + "\n" + rig_.output("agent.log") +
           rig_.output("steps.log");
  }
  // What it has in line takes 13 ms on the 8 SMs that it has beside prompts, and so less than a
  // pause. With kernels of 500 us it would be 66 ms, and it would be in no pause where it is to go.
  std::unique_ptr<Child> start_rest() {
    return rig_.start_with_shim("spin", {"--kernel-us", "100", "--seconds", "1000"});
  }
  // Answers so many requests, one each 60 ms.
  std::unique_ptr<Child> read_prompts(int count) {
    return rig_.start_with_shim(
        "steps", {"--mode", "serve", "--announce", "1", "--iterations", std::to_string(count),
                  "--launches", "8", "--pause-us", "60000"});
  }

  SystemRig rig_{kTpotConfig};
};

TEST_F(TpotSystem, BetweenTwoPromptsAnotherProgramHasTheirSms) {
  rig_.start_agent();
  const auto rest = start_rest();
  auto prompts = read_prompts(100'000);  // for as long as a busy machine needs to show it
  EXPECT_TRUE(eventually([&] { return part("prompts").sms_entitled == 120; })) << seen();
  EXPECT_EQ(part("prompts").phase, static_cast<uint32_t>(ShimPhase::kPrefill));
  EXPECT_TRUE(eventually([&] {
    return part("prompts").sms_in_use <= kOneGroup && part("rest").sms_in_use > 100;
  })) << seen();
  EXPECT_TRUE(eventually([&] { return part("prompts").sms_in_use > 100; })) << seen();
  prompts->signal(SIGKILL);
  prompts = read_prompts(30);
  EXPECT_EQ(status_of(*prompts), 0) << "all are answered, and its results are right";
  EXPECT_NE(rig_.output("steps.log").find("\"attached\":true"), std::string::npos);
}

// It may stand at its gate at any of these moments.
TEST_F(TpotSystem, WhoLendsIsHeldByNobodyWhenAgentAndSupervisorAreKilled) {
  rig_.start_agent();
  const auto rest = start_rest();
  const auto prompts = read_prompts(200);
  EXPECT_TRUE(eventually([&] { return part("prompts").sms_in_use <= kOneGroup; })) << seen();
  rig_.gpushared->signal(SIGKILL);
  if (const pid_t agent = rig_.agent_pid(); agent > 0) ::kill(agent, SIGKILL);
  EXPECT_EQ(status_of(*prompts), 0) << seen();
}

TEST_F(TpotSystem, AProgramThatReadsAndWritesIsRecognised) {
  rig_.start_agent();
  const auto model = rig_.start_with_shim(
      "steps", {"--mode", "decode", "--iterations", "1000000", "--launches", "12", "--units", "1"});
  EXPECT_TRUE(eventually([&] {
    return part("model").phase == static_cast<uint32_t>(ShimPhase::kDecode);
  })) << seen();
  EXPECT_EQ(part("model").iteration_source, static_cast<uint32_t>(ShimSource::kRecognised));
}

}  // namespace
}  // namespace gpushare::test
