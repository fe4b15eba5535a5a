// SPDX-License-Identifier: Apache-2.0
// Kernels whose blocks wait for each other (meet.cc), on the simulated GPU: what a program is shown
// of the GPU's size, and what its slot says when such a kernel does not fit into its partition.
#include "tests/intercept/shim/on_the_simulated_gpu.h"

namespace gpushare::test {
namespace {

constexpr uint64_t kTwoGroups = 0b11;
constexpr uint32_t kSmsOfGpu = 132;
const std::string kAllBlocks = std::to_string(2 * kSmsOfGpu);

class Meet : public OnTheSimulatedGpu {
 protected:
  static uint32_t said(ShimRig& rig, const Child& program,
                       std::atomic<uint32_t> ShimNeeds::* what) {
    uint32_t said = 0;
    rig.with_slot(program.pid(), [&](ShimSlot& slot) { said = (slot.needs[0].*what).load(); });
    return said;
  }
  static bool waits(ShimRig& rig, const Child& program) {
    bool waits = false;
    rig.with_slot(program.pid(), [&](ShimSlot& slot) { waits = slot.waits != 0; });
    return waits;
  }
};

TEST_F(Meet, AProgramIsShownItsPartitionWhereThatIsAskedFor) {
  for (const auto& [features, sms] : {std::pair(uint32_t{kShimPartitions}, kSmsOfGpu),
                                      std::pair(uint32_t{kShimPartitions | kShimShown}, 32U)}) {
    ShimRig rig(features, {{.pci = kPci, .groups = 0b1111, .sms_shown = 32}});
    const Json line = last_line(succeed({"meet", "--blocks", "64"}, &rig));
    EXPECT_EQ(line["sms"], sms);
    EXPECT_EQ(line["fitting"], 2 * sms) << "blocks of 1024 threads";
  }
}

TEST_F(Meet, WhoAsksHowManyBlocksFitIsToldThatOfItsPartition) {
  ShimRig rig(kShimPartitions | kShimShown, {{.pci = kPci, .groups = 0b1111, .sms_shown = 32}});
  EXPECT_EQ(last_line(succeed({"meet", "--launches", "20"}, &rig))["verified"], true);
}

TEST_F(Meet, WhatItWasShownStaysWhenTheAgentIsAnother) {
  ShimRig rig(kShimGate | kShimPartitions | kShimShown,
              {{.pci = kPci, .groups = 0b1111, .sms_shown = 32}});
  const auto program = start({"meet", "--launches", "200", "--pause-us", "1000"}, &rig);
  ASSERT_TRUE(rig.launches_beyond(2));
  rig.with_all_slots([](ShimSlot& slot) { slot.sms_shown[0] = 16; });
  EXPECT_EQ(last_line(success_of(*program))["sms"], 32);
}

TEST_F(Meet, ABarrierThatDoesNotFitIsSaidInTheSlotAndEndsInAWiderPartition) {
  ShimRig rig(kShimPartitions, {{kPci, kTwoGroups}});
  const auto program = start({"meet", "--small", "5", "--blocks", kAllBlocks}, &rig);
  ASSERT_TRUE(
      eventually([&] { return said(rig, *program, &ShimNeeds::at_once_sms) == kSmsOfGpu; }));
  EXPECT_TRUE(eventually([&] { return waits(rig, *program); }));
  want(rig, 0);
  EXPECT_FALSE(program->has_ended()) << "nothing widens a partition under a kernel that runs";
  EXPECT_EQ(said(rig, *program, &ShimNeeds::at_once_sms), kSmsOfGpu);
  ShimRig wide(kShimPartitions, {{kPci, 0}});
  EXPECT_EQ(last_line(succeed({"meet", "--blocks", kAllBlocks}, &wide))["verified"], true);
}

TEST_F(Meet, WhatHasEndedNeedsNothing) {
  ShimRig rig(kShimPartitions, {{kPci, kTwoGroups}});
  const auto program =
      start({"meet", "--launches", "1000000", "--blocks", "32", "--pause-us", "1000"}, &rig);
  ASSERT_TRUE(rig.launches_beyond(20));
  EXPECT_TRUE(eventually([&] { return said(rig, *program, &ShimNeeds::at_once_sms) == 0; }));
  EXPECT_EQ(said(rig, *program, &ShimNeeds::refused_sms), 0u);
}

TEST_F(Meet, ACooperativeLaunchThatDoesNotFitRunsAtHomeAndIsSaid) {
  for (const char* how : {"cooperative", "configured"}) {
    ShimRig rig(kShimPartitions, {{kPci, kTwoGroups}});
    const auto program = start({"meet", "--how", how, "--small", "5", "--launches", "1000000",
                                "--blocks", kAllBlocks, "--pause-us", "1000"},
                               &rig);
    ASSERT_TRUE(rig.launches_beyond(20)) << how;
    EXPECT_EQ(said(rig, *program, &ShimNeeds::refused_sms), kSmsOfGpu) << how;
    EXPECT_FALSE(program->has_ended()) << how;
  }
}

// Seen on an H100 with cuBLAS and cuDNN: the agent took it for a kernel that needs all SMs at once.
TEST_F(Meet, ClustersThatDoNotFitRunAtHomeAndNeedNothing) {
  constexpr uint64_t kOddGroup = 1 << 15, kWithAnother = kOddGroup | 1;
  for (const auto& [groups, leaves] :
       {std::pair(kOddGroup, true), std::pair(kWithAnother, false)}) {
    ShimRig rig(kShimPartitions, {{kPci, groups}});
    const auto program = start({"meet", "--how", "clusters", "--small", "5", "--launches",
                                "1000000", "--blocks", "8", "--pause-us", "1000"},
                               &rig);
    ASSERT_TRUE(rig.launches_beyond(20));
    EXPECT_EQ(said(rig, *program, &ShimNeeds::refused_sms), 0u);
    uint64_t home = 0;
    rig.with_slot(program->pid(), [&](ShimSlot& slot) { home = slot.home_launches[0]; });
    EXPECT_EQ(home > 0, leaves);
    EXPECT_FALSE(program->has_ended());
  }
}

}  // namespace
}  // namespace gpushare::test
