// SPDX-License-Identifier: Apache-2.0
// A process with a target time that makes up iterations, to get SMs that are others'.
#include <gtest/gtest.h>

#include <string>

#include "tests/sched/system/system_rig.h"

namespace gpushare {
namespace {

using test::SystemRig;

TEST(SlotLiar, IterationsThatCannotBeGetNoSms) {
  SystemRig rig(R"(
[gpu.0]
sharing = "spatial"
policy = "slo"
[mps]
program = "/nonexistent"
[tenant.liar]
match = [{command="slot_liar"}]
slo_us = 1000
[tenant.honest]
match = [{command="spin"}]
)");
  rig.start_agent();
  const auto honest = rig.start_with_shim("spin", test::kSaturating);
  ASSERT_TRUE(eventually([&] { return rig.record(honest->pid()).pid != 0; }));
  const auto liar = rig.start_attack("slot_liar", {"--seconds", "1000"});
  const auto part = [&] { return rig.tenant("liar").gpu[0]; };
  ASSERT_TRUE(eventually([&] { return rig.output("slot_liar.log").contains("has_slot"); }));
  EXPECT_TRUE(eventually([&] { return rig.output("agent.log").contains("is not believed"); }))
      << rig.output("agent.log");
  EXPECT_TRUE(eventually([&] { return part().slo_state == SloState::kUnmeasured; }))
      << static_cast<int>(part().slo_state);
  // Both have half of the 16 SM groups. One that is believed is given 15 of them for its target.
  constexpr uint32_t kHalf = 64;
  EXPECT_TRUE(eventually([&] { return part().sms_entitled == kHalf; })) << part().sms_entitled;
  const uint64_t end = rig.snapshot().agent.ticks + 20;
  EXPECT_TRUE(eventually([&] { return rig.snapshot().agent.ticks >= end; }));
  EXPECT_EQ(part().slo_state, SloState::kUnmeasured);
  EXPECT_EQ(part().sms_entitled, kHalf);
  EXPECT_LE(part().sms_in_use, kHalf);
  EXPECT_GE(rig.tenant("honest").gpu[0].sms_in_use, kHalf);
}

}  // namespace
}  // namespace gpushare
