// SPDX-License-Identifier: Apache-2.0
// Who gets a slot, whose it is, and what of its words is believed.
#include "shmctl/shim/credit.h"
#include "shmctl/shim/published.h"
#include "tests/sched/mps/fake_mps_host.h"
#include "tests/sched/shim/shim_link_rig.h"
#include "tests/sched/support/fake_proc_reader.h"

namespace gpushare::test {
namespace {

using namespace std::chrono_literals;

TEST_F(ShimLinkTest, WhoseTenantHasNoPartGetsNoSlot) {
  share(kSpatial);
  EXPECT_EQ(connect(), nullptr);
}

// So that it is known what a program that starts has launched (sched/account/lone_context.h).
TEST_F(ShimLinkTest, WhereGpusAreSharedByTimeItSaysWhatItLaunchesAndNobodyIsHeld) {
  share("");
  ASSERT_NE(connect(), nullptr);
  EXPECT_EQ(slot_->head.features, uint32_t{kShimGate});
  EXPECT_FALSE(is_closed());
  step();
  EXPECT_FALSE(is_closed());
  EXPECT_TRUE(read_slot(*slot_).shows_work);
}

TEST_F(ShimLinkTest, CreditIsAskedForWhereTheGateIsOnTheGpu) {
  share("[gpu.0]\nsharing = 'spatial'\ngate = 'credit'\n");
  EXPECT_EQ(connect(), nullptr) << "a program without a part is left alone";
  give_default_a_part();
  ASSERT_NE(connect(), nullptr);
  EXPECT_EQ(slot_->head.features, kShimGate | kShimPartitions | kShimCredit);
  EXPECT_EQ(slot_->credit.most_ahead_us, Spatial::kMostAheadUs);
  share(kSpatial);
  ASSERT_NE(connect(), nullptr);
  EXPECT_EQ(slot_->head.features, kShimGate | kShimPartitions);
  EXPECT_EQ(slot_->credit.most_ahead_us, 0U);
}

TEST_F(ShimLinkTest, WithOverlapAProgramWithoutAPartRunsAtOnceToo) {
  share("[gpu.0]\nsharing = 'spatial'\noverlap = true\n");
  ASSERT_NE(connect(), nullptr);
  EXPECT_EQ(slot_->head.features, kShimGate | kShimPartitions);
  EXPECT_EQ(slot_->gpus[0].wanted, 0U) << "the whole GPU";
}

// Its launch was counted in the slot of an agent that has died.
TEST_F(ShimLinkTest, WhoWaitsForCreditWithoutALaunchIsLetIn) {
  share("[gpu.0]\nsharing = 'spatial'\ngate = 'credit'\n");
  give_default_a_part();
  ASSERT_NE(connect(), nullptr);
  for (int i = 0; i < 3; ++i) step();
  EXPECT_TRUE(is_closed());
  slot_->waiting = 1;
  for (int i = 0; i < 3; ++i) step();
  EXPECT_FALSE(is_closed());
  EXPECT_TRUE(is_credit_open(*slot_));
}

// /proc can be made to name another one (PR_SET_DUMPABLE).
TEST_F(ShimLinkTest, WhoseProcessItIsTheKernelSays) {
  FakeProcReader processes;
  const ProcessId own{::getpid(), start_ticks_of(::getpid())};
  processes.add(own, "program", ::geteuid() + 1);
  link_.reset();
  link_ = ShimLink::listen(path_, tenants_, processes, *region_, clock_).value();
  const std::string user = std::to_string(::geteuid());
  const std::vector<Setting> half{{"sm_percent", "50"}};
  ASSERT_TRUE(tenants_.reload({.tenants = {{"user", half}}, .rules = {{"user", {}, user, {}}}}));
  share(kSpatial);
  EXPECT_NE(connect(), nullptr);
  step();
  EXPECT_EQ(link_->partition(*tenants_.find("user"), 0).entitled, 64U);
  link_.reset();
}

TEST_F(ShimLinkTest, WhyAProgramIsHeldOnTheHostAloneIsSaid) {
  give_default_a_part();
  share("[gpu.0]\nsharing = 'spatial'\ngate = 'credit'\n");
  ASSERT_NE(connect(), nullptr);
  const ProcessId own{::getpid(), start_ticks_of(::getpid())};
  for (const ShimHeld none : {ShimHeld::kUnknown, ShimHeld::kOnGpu, ShimHeld{77}}) {
    slot_->credit.held = none;
    EXPECT_EQ(link_->note(own), "");
  }
  slot_->credit.held = ShimHeld::kCollectives;
  EXPECT_EQ(link_->note(own), "held on the host alone: it launches collectives");
  share(kSpatial);
  ASSERT_NE(connect(), nullptr);
  slot_->credit.held = ShimHeld::kCollectives;
  EXPECT_EQ(link_->note(own), "") << "nobody asked it for credit";
}

TEST_F(ShimLinkTest, IterationsThatCannotBeAreNotBelievedAndThatIsSaid) {
  share(kByTarget);
  ASSERT_NE(connect(), nullptr);
  PublishedIterations said{.source = ShimSource::kAnnounced, .confidence = 1000};
  for (int i = 0; i < 4; ++i) {
    said.ended = ++said.begun;
    said.busy_ns = said.latency_ns += 3'600'000'000'000;
    publish(slot_->iterations, said);
    step();
  }
  ASSERT_EQ(link_->views(0).size(), 1u);
  EXPECT_FALSE(link_->views(0)[0].iterations);
  EXPECT_NE(link_->note(link_->views(0)[0].process).find("not believed"), std::string::npos);
}

// The loop stood still for 5 s between the begin of a step and its look at the slots.
TEST_F(ShimLinkTest, WhoIteratesWhileAStepStandsStillIsBelieved) {
  share(kByTarget);
  ASSERT_NE(connect(), nullptr);
  PublishedIterations said{.source = ShimSource::kAnnounced, .confidence = 1000};
  publish(slot_->iterations, said);
  const Time begin = MonotonicClock().now();
  link_->read(begin, Registry(gpus_));
  said.ended = ++said.begun;
  said.busy_ns = said.latency_ns = 5'000'000'000;
  publish(slot_->iterations, said);
  clock_.set(begin + 5s);
  link_->read(begin + 10ms, Registry(gpus_));
  ASSERT_EQ(link_->views(0).size(), 1u);
  EXPECT_TRUE(link_->views(0)[0].iterations) << link_->note(link_->views(0)[0].process);
  EXPECT_EQ(link_->note(link_->views(0)[0].process), "");
}

}  // namespace
}  // namespace gpushare::test
