// SPDX-License-Identifier: Apache-2.0
// Programs that do not want to stay frozen.
#include <gtest/gtest.h>

#include <string>

#include "tests/sched/system/system_rig.h"

namespace gpushare {
namespace {

TEST(AttacksOnFreezes, ANewContextOnAnotherGpuIsFrozenToo) {
  test::SystemRig rig("", /*gpus=*/2);
  rig.start_agent();
  const auto attack = rig.start_attack("new_context");
  const pid_t pid = attack->pid();
  ASSERT_TRUE(eventually([&] { return rig.record(pid, 0).gpu_time_ns > 0; }))
      << rig.output("new_context.log");
  ASSERT_TRUE(rig.answers(R"({"op":"freeze","pid":)" + std::to_string(pid) + "}", R"("ok":true)"));
  const auto is_frozen_there = [&] {
    return rig.record(pid, 1).state == ProcessState::kFrozenUser;
  };
  ASSERT_TRUE(eventually(is_frozen_there)) << rig.output("new_context.log");
  const auto ticks_pass = [&](uint64_t count) {
    const uint64_t end = rig.snapshot().agent.ticks + count;
    return eventually([&] { return rig.snapshot().agent.ticks >= end; });
  };
  ASSERT_TRUE(ticks_pass(5));  // what it did before is counted by then
  const uint64_t used = rig.record(pid, 1).gpu_time_ns;
  ASSERT_TRUE(ticks_pass(20));
  EXPECT_TRUE(is_frozen_there());
  EXPECT_EQ(rig.record(pid, 1).gpu_time_ns, used);
}

// How often this text stands in the other.
int count(const std::string& text, const std::string& in) {
  int times = 0;
  for (auto at = in.find(text); at != std::string::npos; at = in.find(text, at + 1)) ++times;
  return times;
}

TEST(AttacksOnFreezes, AContextThatNoEventToldOfIsFrozenToo) {
  test::SystemRig rig("");
  rig.start_agent();
  const auto other = rig.start("spin", test::kSaturating);
  const auto attack = rig.start_attack("hidden_context", {"--seconds", "1000"});
  ASSERT_TRUE(eventually([&] { return rig.record(attack->pid()).gpu_time_ns > 0; }))
      << rig.output("hidden_context.log");
  ASSERT_TRUE(rig.answers(R"({"op":"freeze","pid":)" + std::to_string(attack->pid()) + "}",
                          R"("ok":true)"));
  // Three lines say the same.
  const auto stands_still = [&] {
    const std::string line = attack->last_line();
    return !line.empty() && count(line, rig.output("hidden_context.log")) >= 3;
  };
  EXPECT_TRUE(eventually(stands_still)) << rig.output("hidden_context.log");
  EXPECT_EQ(rig.record(attack->pid()).state, ProcessState::kFrozenUser);
}

}  // namespace
}  // namespace gpushare
