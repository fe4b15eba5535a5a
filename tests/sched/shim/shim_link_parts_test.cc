// SPDX-License-Identifier: Apache-2.0
// Where parts of a GPU are given: who is let in with which, and what else it is told.
#include "tests/sched/shim/shim_link_rig.h"

namespace gpushare::test {
namespace {

using namespace std::chrono_literals;

TEST_F(ShimLinkTest, AProcessIsLetInWithItsTenantsPart) {
  give_default_a_part();
  share(kSpatial);
  ASSERT_NE(connect(), nullptr);
  EXPECT_TRUE(is_closed());
  step();
  EXPECT_TRUE(is_closed()) << "nothing was launched";
  launch();
  step();
  EXPECT_FALSE(is_closed());
  EXPECT_EQ(slot_->gpus[0].wanted, 0u) << "alone it has the whole GPU, for now";
  EXPECT_EQ(entitled(), 64u);
}

TEST_F(ShimLinkTest, WherePartsGoByTargetTimesEveryoneIsConfinedAndMeasured) {
  share(kByTarget);
  ASSERT_NE(connect(), nullptr);
  // The agent asks nobody for credit.
  EXPECT_EQ(slot_->head.features, uint32_t{kShimGate | kShimPartitions | kShimIterations});
  launch();
  step();
  EXPECT_FALSE(is_closed());
  ASSERT_EQ(plan_.statuses.size(), 1u);
  EXPECT_EQ(plan_.statuses[0].state, SloState::kRest);
  EXPECT_EQ(slot_->gpus[0].sms, 132u);
  EXPECT_NE(entitled(), 0u);
  EXPECT_EQ(slot_->gpus[0].sms_entitled, entitled()) << "its program may read it";
}

TEST_F(ShimLinkTest, AnotherPolicyTakesOverTheProcessesThatAreThere) {
  give_default_a_part();
  share(kSpatial);
  ASSERT_NE(connect(), nullptr);
  step();
  ASSERT_EQ(entitled(), 64u);
  share(kByTarget);
  step();
  EXPECT_FALSE(plan_.statuses.empty());
  EXPECT_NE(entitled(), 0u) << "its place is not lost";
}

TEST_F(ShimLinkTest, WhoStandsAtTheGateWhenTheGpusChangeGoesIn) {
  give_default_a_part();
  share(kSpatial);
  ASSERT_NE(connect(), nullptr);
  EXPECT_TRUE(is_closed());
  share("");
  EXPECT_FALSE(is_closed());
}

TEST_F(ShimLinkTest, AProgramIsShownThePartitionThatItsTenantAsksFor) {
  const std::vector<Setting> shown{{"sm_percent", "50"}, {"sm_min", "60"}, {"sm_shown", "true"}};
  ASSERT_TRUE(tenants_.set(kDefaultTenantName, shown, false));
  share(kSpatial);
  ASSERT_NE(connect(), nullptr);
  EXPECT_EQ(slot_->head.features, uint32_t{kShimGate | kShimPartitions | kShimShown});
  EXPECT_EQ(slot_->sms_shown[0], 80u) << "60 % in whole groups";
  const std::vector<Setting> less{{"sm_percent", "10"}, {"sm_min", "0"}, {"sm_shown", "false"}};
  ASSERT_TRUE(tenants_.set(kDefaultTenantName, less, false));
  launch();
  step();
  EXPECT_EQ(entitled(), 80u) << "what it was shown holds for as long as it runs";
}

TEST_F(ShimLinkTest, APartitionIsWidenedForWhatTheDriverHasRefused) {
  const std::vector<Setting> quarter{{"sm_percent", "25"}};
  ASSERT_TRUE(tenants_.set(kDefaultTenantName, quarter, false));
  share(kSpatial);
  ASSERT_NE(connect(), nullptr);
  launch();
  step();
  EXPECT_EQ(entitled(), 32u);
  slot_->needs[0].refused_sms = 100;
  step();
  EXPECT_EQ(entitled(), 104u);
  const ProcessId own{::getpid(), start_ticks_of(::getpid())};
  EXPECT_NE(link_->note(own).find("100 SMs"), std::string::npos) << link_->note(own);
  slot_->needs[0].refused_sms = 1'000'000;
  step();
  EXPECT_EQ(entitled(), 104u) << "no GPU has as many";
  ASSERT_NE(connect(), nullptr) << "as one that was started again by the same command";
  launch();
  step();
  EXPECT_EQ(entitled(), 104u);
}

// Another GPU was opened late, because its driver hung.
TEST_F(ShimLinkTest, WhereAGpuJoinsLaterProgramsGoOnBeingMovedAndThereAsWell) {
  give_default_a_part();
  std::vector<GpuInfo> all = gpus_;
  all.push_back(gpus_[0]);
  all[1].index = 1;
  all[1].pci = "0000:0a:00.0";
  std::swap(all[0], all[1]);  // the one that joins comes first in the list
  const Config config =
      parse("[gpu.0]\nsharing = 'spatial'\n[gpu.1]\nsharing = 'spatial'\n").value();
  share(kSpatial);
  ASSERT_NE(connect(), nullptr);
  launch();
  step();
  ASSERT_FALSE(is_closed());
  link_->set_gpus(all, config);
  EXPECT_FALSE(is_closed());
  ASSERT_EQ(slot_->head.gpu_count, 2U);
  EXPECT_STREQ(slot_->gpus[0].pci, "0000:1b:00.0") << "GPUs keep their places";
  EXPECT_STREQ(slot_->gpus[1].pci, "0000:0a:00.0");
  step();
  EXPECT_EQ(entitled(), 64u) << "its part is not lost";
  EXPECT_EQ(slot_->gpus[0].sms_entitled, 64u);
}

// A program that does not move between partitions is nobody's, and nobody holds it.
TEST_F(ShimLinkTest, WhereTheFirstSpatialGpuJoinsLaterWhoDoesNotMoveGoesIn) {
  share("");
  ASSERT_NE(connect(), nullptr);
  slot_->gate = 1;
  share(kSpatial);
  EXPECT_EQ(slot_->head.gpu_count, 0U);
  EXPECT_FALSE(is_closed());
}

}  // namespace
}  // namespace gpushare::test
