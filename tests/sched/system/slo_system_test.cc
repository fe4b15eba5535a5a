// SPDX-License-Identifier: Apache-2.0
// The policy `slo` with real processes on the simulated GPU.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <iterator>
#include <numeric>

#include "tests/sched/system/system_rig.h"

namespace gpushare::test {
namespace {

constexpr const char* kConfig = R"(
[agent]
knees = ""
[gpu.0]
sharing = "spatial"
policy = "slo"
[tenant.serve]
slo_us = 2000000
match = [{command="steps"}]
[tenant.rest]
match = [{command="spin"}]
)";

class SloSystem : public ::testing::Test {
 protected:
  TenantGpuUse part(const std::string& name) const { return rig_.tenant(name).gpu[0]; }
  std::string seen() const {
    const TenantGpuUse serve = part("serve"), rest = part("rest");
    return "serve " + std::to_string(serve.sms_in_use) + "/" + std::to_string(serve.sms_entitled) +
           ", state " + std::to_string(static_cast<int>(serve.slo_state)) + ", " +
           std::to_string(serve.latency_us) + " us; rest " + std::to_string(rest.sms_in_use) +
           "\n" + rig_.output("agent.log") + rig_.output("steps.log");
  }

  SystemRig rig_{kConfig};
};

TEST_F(SloSystem, AProgramThatAnnouncesGetsWhatItsTargetNeedsAndOthersTheRest) {
  rig_.start_agent();
  const auto rest = rig_.start_with_shim("spin", {"--kernel-us", "500", "--seconds", "1000"});
  EXPECT_TRUE(eventually([&] { return part("rest").sms_in_use == 132; })) << seen();
  EXPECT_EQ(part("rest").slo_state, SloState::kRest);
  const auto serve =
      rig_.start_with_shim("steps", {"--mode", "serve", "--announce", "1", "--iterations",
                                     "1000000", "--launches", "8", "--pause-us", "100000"});
  // At first `serve` gets half of the SMs, and it needs far less.
  EXPECT_TRUE(eventually([&] { return part("serve").iteration_source == 2; })) << seen();
  EXPECT_TRUE(eventually([&] {
    const TenantGpuUse has = part("serve");
    return has.slo_state == SloState::kMeets && has.sms_entitled <= 24 &&
           has.sms_in_use == has.sms_entitled && part("rest").sms_in_use == 132 - has.sms_entitled;
  })) << seen();
  EXPECT_LE(part("serve").latency_us, 2'000'000U);
  EXPECT_GT(part("serve").iterations_per_ks, 0U);
  // Each took between the shortest and the longest time of its class, and they stay when it ends.
  const auto counted = [&] {
    const TenantRecord tenant = rig_.tenant("serve");
    return std::accumulate(std::begin(tenant.iteration_counts), std::end(tenant.iteration_counts),
                           uint64_t{0});
  };
  EXPECT_TRUE(eventually([&] { return counted() > 5; })) << seen();
  EXPECT_GT(rig_.tenant("serve").iteration_us, 5 * 100U);
  serve->signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return rig_.tenant("serve").process_count == 0; })) << seen();
  EXPECT_GT(counted(), 5U);
  EXPECT_TRUE(eventually([&] { return part("rest").sms_in_use == 132; })) << seen();
}

TEST_F(SloSystem, AProgramThatAnnouncesNothingIsRecognised) {
  rig_.start_agent();
  const auto serve = rig_.start_with_shim("steps", {"--mode", "train", "--iterations", "1000000"});
  EXPECT_TRUE(eventually([&] {
    const TenantGpuUse has = part("serve");
    return has.iteration_source == 1 && has.confidence_permille >= 750 && has.sms_entitled < 120;
  })) << seen();
}

}  // namespace
}  // namespace gpushare::test
