// SPDX-License-Identifier: Apache-2.0
// What the control plane says of parts of SMs.
#include "sched/step/publisher.h"

#include <gtest/gtest.h>

#include "tests/sched/support/no_shims.h"
#include "tests/sched/support/scheduler_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using test::SchedulerRig;

TenantGpuUse tenant_gpu_use(SchedulerRig& rig, const std::string& tenant) {
  for (const TenantSlot& slot : rig.region->tenants)
    if (const auto record = read_record(slot.record); record && record->name == tenant)
      return record->gpu[0];
  return {};
}

constexpr const char* kSpatial = "[gpu.0]\nsharing = 'spatial'\n";
constexpr const char* kByTarget = "[gpu.0]\nsharing = 'spatial'\npolicy = 'slo'\n";

class PublisherTest : public ::testing::Test, private test::NoShims {
 protected:
  PublisherTest() {
    rig_.shims = this;
    rig_.start(true, kSpatial);
    rig_.add_busy("a", {});
  }
  void publish(const TenantPartition& partition) {
    partition_ = partition;
    rig_.run_for(200ms);
  }
  void configure(const char* text) {
    rig_.scheduler->configure(test::parse(text).value());
    rig_.run_for(200ms);
  }

  SchedulerRig rig_;
  std::string note_;  // that the shim has about each process

 private:
  TenantPartition partition(uint32_t tenant, uint32_t) const override {
    return tenant == rig_.tenants.find("a") ? partition_ : TenantPartition{};
  }
  std::string note(const ProcessId&) const override { return note_; }
  TenantPartition partition_;
};

TEST_F(PublisherTest, SaysHowManyShareASet) {
  publish({.entitled = 104, .in_use = 96, .geometry = {}, .sharers = 12, .partition = 3});
  EXPECT_EQ(tenant_gpu_use(rig_, "a").sms_entitled, 104u);
  EXPECT_EQ(tenant_gpu_use(rig_, "a").sms_in_use, 96u);
  EXPECT_EQ(tenant_gpu_use(rig_, "a").sms_sharers, 12u);
  EXPECT_EQ(tenant_gpu_use(rig_, "a").sms_set, 3u);
  publish({.entitled = 104, .in_use = 104, .geometry = {}});
  EXPECT_EQ(tenant_gpu_use(rig_, "a").sms_sharers, 1u);
}

// A kernel that never ended was said in the log alone, because its process was a client of MPS.
TEST_F(PublisherTest, WhatIsWrongWithAClientOfMpsGoesBeforeWhatItIs) {
  constexpr uint32_t kServer = 77;
  std::vector<std::unique_ptr<sim::Program>> clients;
  for (const pid_t pid : {501, 502}) {
    clients.push_back(std::make_unique<sim::Program>(rig_.machine, pid, 0, kServer));
    clients.back()->endless();
  }
  publish({});
  const auto note = [&] { return std::string(rig_.record(*clients[0]).note); };
  EXPECT_NE(note().find("MPS client"), std::string::npos) << note();
  note_ = "a kernel does not end";
  publish({});
  EXPECT_EQ(note(), note_);
}

TEST_F(PublisherTest, SaysWhyAProgramStays) {
  publish({.entitled = 48, .in_use = 64, .follows = ShimFollows::kOwnContexts});
  EXPECT_EQ(tenant_gpu_use(rig_, "a").sms_follows,
            static_cast<uint32_t>(ShimFollows::kOwnContexts));
}

TEST_F(PublisherTest, SaysHowEachGpuIsShared) {
  const auto sharing = [&] {
    const auto record = read_record(rig_.region->gpus[0]);
    return record ? std::optional(record->sharing) : std::nullopt;
  };
  publish({});
  EXPECT_EQ(sharing(), GpuSharing::kSpatial);
  configure(kByTarget);
  EXPECT_EQ(sharing(), GpuSharing::kSlo);
  configure("");
  EXPECT_EQ(sharing(), GpuSharing::kTime);
}

TEST_F(PublisherTest, WithoutAPartItIsNotKnown) {
  publish({});
  EXPECT_EQ(tenant_gpu_use(rig_, "a").sms_entitled, kUnknown32);
  EXPECT_EQ(tenant_gpu_use(rig_, "a").sms_sharers, kUnknown32);
}

TEST_F(PublisherTest, GroupsOfTheStatusAreSmsInTheRecord) {
  class Starves final : public Policy {
   public:
    explicit Starves(uint32_t tenant) : tenant_(tenant) {}
    Plan plan(const Snapshot&) override {
      Plan plan;
      plan.statuses.push_back({.tenant = tenant_,
                               .slo = 20ms,
                               .latency = 0.031,
                               .throughput = 32.25,
                               .needs = 15,
                               .state = SloState::kStarved});
      return plan;
    }

   private:
    const uint32_t tenant_;
  };
  const PolicyEntry starves{.name = "starves",
                            .summary = "",
                            .needs = {},
                            .options = {},
                            .make = [&](const GpuView&, const PolicyOptions&) {
                              return std::make_unique<Starves>(rig_.tenants.find("a").value());
                            }};
  Config config(std::span(&starves, 1));
  config.other_gpus.is_spatial = true;
  rig_.scheduler->configure(config);
  publish({.entitled = 104, .in_use = 104, .geometry = {}, .sharers = 2});
  const TenantGpuUse use = tenant_gpu_use(rig_, "a");
  EXPECT_EQ(use.slo_state, SloState::kStarved);
  EXPECT_EQ(use.slo_us, 20'000u);
  EXPECT_EQ(use.latency_us, 31'000u);
  EXPECT_EQ(use.iterations_per_ks, 32'250u);
  EXPECT_EQ(use.sms_needed, 120u);
  EXPECT_EQ(use.sms_knee, kUnknown32);
}

}  // namespace
}  // namespace gpushare
