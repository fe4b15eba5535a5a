// SPDX-License-Identifier: Apache-2.0
// What the control plane says of parts of SMs.
#include "sched/step/publisher.h"

#include <gtest/gtest.h>

#include "tests/sched/support/scheduler_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::SchedulerRig;

TenantGpuUse use_of(SchedulerRig& rig, const std::string& tenant) {
  for (const TenantSlot& slot : rig.region->tenants)
    if (const auto record = read_record(slot.record); record && record->name == tenant)
      return record->gpu[0];
  return {};
}

class PublisherTest : public ::testing::Test {
 protected:
  PublisherTest() {
    rig_.start();
    rig_.add_busy("a", {});
    rig_.scheduler->set_agent({.policy = {}, .spatial_gpus = {0}});
  }
  void publish(const SmPart& part) {
    rig_.scheduler->set_parts([part, this](uint32_t tenant, uint32_t) {
      return tenant == rig_.tenants.find("a").value() ? part : SmPart{};
    });
    rig_.run_for(200ms);
  }

  SchedulerRig rig_;
};

TEST_F(PublisherTest, SaysHowManyShareASet) {
  publish({.entitled = 104, .in_use = 96, .geometry = {}, .sharers = 12, .set = 3});
  EXPECT_EQ(use_of(rig_, "a").sms_entitled, 104u);
  EXPECT_EQ(use_of(rig_, "a").sms_in_use, 96u);
  EXPECT_EQ(use_of(rig_, "a").sms_sharers, 12u);
  EXPECT_EQ(use_of(rig_, "a").sms_set, 3u);
  publish({.entitled = 104, .in_use = 104, .geometry = {}});
  EXPECT_EQ(use_of(rig_, "a").sms_sharers, 1u);
}

TEST_F(PublisherTest, SaysWhyAProgramStays) {
  publish({.entitled = 48, .in_use = 64, .follows = ShimFollows::kOwnContexts});
  EXPECT_EQ(use_of(rig_, "a").sms_follows, static_cast<uint32_t>(ShimFollows::kOwnContexts));
}

TEST_F(PublisherTest, SaysHowEachGpuIsShared) {
  const auto sharing = [&] {
    const auto record = read_record(rig_.region->gpus[0]);
    return record ? std::optional(record->sharing) : std::nullopt;
  };
  publish({});
  EXPECT_EQ(sharing(), GpuSharing::kSpatial);
  rig_.scheduler->set_agent({.policy = {}, .spatial_gpus = {0}, .slo_gpus = {0}});
  rig_.run_for(200ms);
  EXPECT_EQ(sharing(), GpuSharing::kSlo);
  rig_.scheduler->set_agent({.policy = {}});
  rig_.run_for(200ms);
  EXPECT_EQ(sharing(), GpuSharing::kTime);
}

TEST_F(PublisherTest, WithoutAPartItIsNotKnown) {
  publish({});
  EXPECT_EQ(use_of(rig_, "a").sms_entitled, kUnknown32);
  EXPECT_EQ(use_of(rig_, "a").sms_sharers, kUnknown32);
}

TEST_F(PublisherTest, GroupsOfTheRuleAreSmsInTheRecord) {
  SloStatus slo;
  slo.state = SloState::kStarved;
  slo.slo = Nanos(20'000'000);
  slo.latency = 0.031;
  slo.throughput = 32.25;
  slo.needs = 15;
  publish({.entitled = 104, .in_use = 104, .geometry = {}, .sharers = 2, .slo = slo});
  const TenantGpuUse use = use_of(rig_, "a");
  EXPECT_EQ(use.slo_state, SloState::kStarved);
  EXPECT_EQ(use.slo_us, 20'000u);
  EXPECT_EQ(use.latency_us, 31'000u);
  EXPECT_EQ(use.iterations_per_ks, 32'250u);
  EXPECT_EQ(use.sms_needed, 120u);
  EXPECT_EQ(use.sms_knee, kUnknown32);
}

}  // namespace
}  // namespace gpushare
