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
)");
  rig.start_agent();
  const auto liar = rig.start_attack("slot_liar", {"--seconds", "1000"});
  const auto part = [&] { return rig.tenant("liar").gpu[0]; };
  ASSERT_TRUE(eventually([&] { return rig.output("slot_liar.log").contains("has_slot"); }));
  EXPECT_TRUE(eventually([&] { return rig.output("agent.log").contains("is not believed"); }))
      << rig.output("agent.log");
  EXPECT_TRUE(eventually([&] { return part().slo_state == SloState::kUnmeasured; }))
      << static_cast<int>(part().slo_state);
}

}  // namespace
}  // namespace gpushare
