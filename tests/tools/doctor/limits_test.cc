// SPDX-License-Identifier: Apache-2.0
// What the doctor says of limits: whether each binds, where it is enforced, and why not.
#include "tests/tools/doctor/healthy_machine.h"

namespace gpushare {
namespace {

TEST(DoctorLimits, MemoryIsNotBoundByAModuleThatIsNotHooked) {
  const Machine machine;
  EXPECT_TRUE(limit(machine.input(), "memory_max").is_binding);
  machine.tree.write("sys/kernel/gpushare/driver", "drained\n");
  EXPECT_FALSE(limit(machine.input(), "memory_max").is_binding);
  EXPECT_EQ(limit(machine.input(), "memory_max").why, "gpushare.ko is drained");
}

TEST(DoctorLimits, BindWhereTheAgentCanEnforceThem) {
  const Machine machine;
  const DoctorInput input = machine.input();
  for (const char* name : {"weight", "max", "priority", "memory_max"})
    EXPECT_TRUE(limit(input, name).is_binding) << name;
  EXPECT_EQ(limit(input, "weight").used_by, std::vector<std::string>{"research"});
  EXPECT_EQ(limit(input, "max").used_by, std::vector<std::string>{"capped"});
  EXPECT_EQ(limit(input, "priority").used_by, std::vector<std::string>{"batch"});
}

TEST(DoctorLimits, SayHonestlyWhatDoesNotBind) {
  const Machine machine;
  machine.remove("sys/kernel/gpushare");
  DoctorInput input = machine.input();
  input.status->snapshot.tenants[0].record.memory_max_bytes = 1 << 30;
  input.status->snapshot.tenants[1].record.sm_percent = 50;
  EXPECT_FALSE(limit(input, "memory_max").is_binding);
  EXPECT_NE(limit(input, "memory_max").why.find("not loaded"), std::string::npos);
  EXPECT_EQ(limit(input, "memory_max").used_by, std::vector<std::string>{"default"});
  EXPECT_FALSE(limit(input, "sm_percent").is_binding);
  EXPECT_EQ(limit(input, "sm_percent").used_by, std::vector<std::string>{"research"});
}

TEST(DoctorLimits, WhatAUserSetsWithoutEffectIsNamed) {
  const Machine machine;
  const std::vector<std::pair<std::string, std::string>> settings = {
      {"memory_max", "100M"}, {"sm_percent", "50"}, {"weight", "300"}, {"slo_us", "0"}};
  const auto lines = [&](const DoctorInput& input, bool has_shim) {
    return without_effect(settings, check_limits(input), has_shim);
  };
  DoctorInput input = machine.input();
  EXPECT_EQ(lines(input, true).size(), 1u) << "the GPU is shared by time";
  EXPECT_NE(lines(input, true).front().find("sm_percent=50 does not bind: no GPU is shared so"),
            std::string::npos);
  input.status->snapshot.gpus.emplace_back().sharing = GpuSharing::kSpatial;
  EXPECT_EQ(lines(input, true), std::vector<std::string>());
  EXPECT_EQ(without_effect(settings, check_limits(input), true, "team/job"),
            std::vector<std::string>{
                "sm_percent=50 does not bind: all below 'team' are in its part of the SMs"});
  EXPECT_EQ(lines(input, false),
            std::vector<std::string>{"sm_percent=50 does not bind: the program is started without "
                                     "the shim (gpushare run --shim)"});
  machine.remove("sys/kernel/gpushare");
  EXPECT_EQ(lines(input, true),
            std::vector<std::string>{"memory_max=100M does not bind: gpushare.ko is not loaded"});
}

TEST(DoctorLimits, WhatIsSetOfAPartitionBindsWhereThereAreAny) {
  const Machine machine;
  DoctorInput input = machine.input();
  input.status->snapshot.tenants[0].record.sm_min = 20;
  input.status->snapshot.tenants[1].record.sm_shown = 1;
  const std::vector<std::pair<std::string, std::string>> settings = {{"sm_min", "20"},
                                                                     {"sm_shown", "true"}};
  const auto unbound = [&](bool has_shim) {
    return without_effect(settings, check_limits(input), has_shim).size();
  };
  EXPECT_EQ(limit(input, "sm_min").used_by, std::vector<std::string>{"default"});
  EXPECT_EQ(limit(input, "sm_shown").used_by, std::vector<std::string>{"research"});
  EXPECT_EQ(unbound(true), 2u) << "the GPU is shared by time";
  input.status->snapshot.gpus.emplace_back().sharing = GpuSharing::kSpatial;
  EXPECT_EQ(unbound(true), 0u);
  EXPECT_EQ(unbound(false), 2u);
}

TEST(DoctorLimits, APhaseBindsUnderItsPolicyOnly) {
  const Machine machine;
  DoctorInput input = machine.input();
  input.status->snapshot.tenants[0].record.phase = TenantPhase::kDecode;
  EXPECT_FALSE(limit(input, "phase").is_binding);
  EXPECT_EQ(limit(input, "phase").used_by, std::vector<std::string>{"default"});
  std::strcpy(input.status->snapshot.gpus.emplace_back().policy, "tpot");
  EXPECT_TRUE(limit(input, "phase").is_binding);
}

TEST(DoctorLimits, TargetsSayHowManyShareTheirSms) {
  const Machine machine;
  DoctorInput input = machine.input();
  EXPECT_FALSE(limit(input, "slo_us").is_binding);
  input.status->snapshot.gpus.emplace_back().sharing = GpuSharing::kSpatial;
  TenantGpuUse& use = input.status->snapshot.tenants[0].record.gpu[0];
  use.slo_state = SloState::kMeets;
  use.sms_sharers = 1;
  EXPECT_TRUE(limit(input, "slo_us").is_binding);
  EXPECT_EQ(limit(input, "slo_us").why.find("tenants share"), std::string::npos);
  use.sms_sharers = 3;
  input.status->snapshot.tenants[1].record.gpu[0] = use;
  EXPECT_NE(limit(input, "slo_us").why.find("2 tenants share"), std::string::npos)
      << limit(input, "slo_us").why;
}

TEST(DoctorLimits, ObserveOnlyAndNoAgentBindNothing) {
  const Machine machine;
  DoctorInput input = machine.input();
  AgentRecord& agent = input.status->snapshot.agent;
  agent.can_freeze = agent.can_set_slice = 0;
  std::strcpy(agent.observe_only_reason, "driver 999 is unknown");
  EXPECT_EQ(limit(input, "max").why, "driver 999 is unknown");
  input.status->health.state = AgentHealth::State::kGone;
  EXPECT_EQ(limit(input, "weight").why, "no agent runs");
  input.status = make_error(std::errc::connection_refused, "connect");
  for (const char* name : {"weight", "max", "priority"})
    EXPECT_FALSE(limit(input, name).is_binding) << name;
}

}  // namespace
}  // namespace gpushare
