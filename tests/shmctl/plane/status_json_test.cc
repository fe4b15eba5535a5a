// SPDX-License-Identifier: Apache-2.0
#include "shmctl/plane/status_json.h"

#include <gtest/gtest.h>

#include <cstring>

namespace gpushare {
namespace {

PlaneSnapshot sample() {
  PlaneSnapshot snapshot;
  snapshot.is_consistent = true;
  snapshot.agent.agent_pid = 321;
  snapshot.agent.gpu_count = 1;
  snapshot.agent.can_freeze = 1;
  std::strcpy(snapshot.agent.policy, "fair");
  GpuRecord gpu;
  gpu.busy_permille = 987;
  std::strcpy(gpu.name, "NVIDIA H200");
  snapshot.gpus = {gpu};
  Numbered<TenantRecord> tenant{.slot = 4, .record = {}};
  std::strcpy(tenant.record.name, "research");
  tenant.record.quota_us = 30000;
  tenant.record.priority = Priority::kHigh;
  tenant.record.gpu[0].share_permille = 301;
  tenant.record.gpu[0].slo_state = SloState::kStarved;
  tenant.record.gpu[0].latency_us = 20'400;
  tenant.record.gpu[0].iterations_per_ks = 49'019;
  tenant.record.gpu[0].iteration_source = 2;
  tenant.record.gpu[0].sms_sharers = 12;
  tenant.record.gpu[0].sms_set = 3;
  tenant.record.gpu[0].sms_follows = 4;
  snapshot.tenants = {tenant};
  Numbered<ProcessRecord> process{.slot = 9, .record = {}};
  process.record.pid = 77;
  process.record.tenant = 4;
  process.record.state = ProcessState::kFrozenTurn;
  process.record.tokens_ns = -5;
  process.record.share_permille = 299;
  for (uint16_t& value : process.record.history_permille) value = 0xFFFF;
  process.record.history_permille[kHistory - 1] = 250;
  std::strcpy(process.record.command, "train");
  snapshot.processes = {process};
  return snapshot;
}

TEST(StatusJson, ComesBackAsItWas) {
  const PlaneSnapshot before = sample();
  const auto after = parse_status_json(status_json(before));
  ASSERT_TRUE(after) << after.error().message();
  EXPECT_EQ(std::memcmp(&before.agent, &after->agent, sizeof(AgentRecord)), 0);
  ASSERT_EQ(after->gpus.size(), 1u);
  EXPECT_EQ(std::memcmp(&before.gpus[0], &after->gpus[0], sizeof(GpuRecord)), 0);
  ASSERT_EQ(after->tenants.size(), 1u);
  EXPECT_EQ(after->tenants[0].slot, 4u);
  EXPECT_EQ(std::memcmp(&before.tenants[0].record, &after->tenants[0].record, sizeof(TenantRecord)),
            0);
  ASSERT_EQ(after->processes.size(), 1u);
  EXPECT_EQ(after->processes[0].slot, 9u);
  EXPECT_EQ(
      std::memcmp(&before.processes[0].record, &after->processes[0].record, sizeof(ProcessRecord)),
      0);
}

TEST(StatusJson, WhatKeepsAProgramWhereItIsHasAName) {
  EXPECT_NE(status_json(sample()).find(R"("sms_follows":"own-contexts")"), std::string::npos);
}

TEST(StatusJson, UnknownIsNullAndNotZero) {
  PlaneSnapshot snapshot = sample();
  snapshot.processes[0].record.share_permille = kUnknown32;
  snapshot.gpus[0].memory_bytes = kUnknown64;
  snapshot.tenants[0].record.gpu[0].sms_sharers = kUnknown32;
  const std::string text = status_json(snapshot);
  EXPECT_NE(text.find(R"("share_pct":null)"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("memory_bytes":null)"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("sms_sharers":null)"), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

TEST(StatusJson, BytesThatAreNotUtf8AreReplaced) {
  PlaneSnapshot snapshot = sample();
  std::strcpy(snapshot.processes[0].record.command, "a\xff\"b");
  const auto after = parse_status_json(status_json(snapshot));
  ASSERT_TRUE(after) << after.error().message();
  EXPECT_STREQ(after->processes[0].record.command, "a\xEF\xBF\xBD\"b");
}

TEST(StatusJson, KeepsTheNewestSamplesOfALongerHistory) {
  std::string samples = "1.0";
  for (int i = 0; i < 70; ++i) samples += ",2.5";
  const auto after = parse_status_json(
      R"({"agent":{},"gpus":[],"tenants":[],"processes":[{"pid":5,"history_pct":[)" + samples +
      "]}]}");
  ASSERT_TRUE(after) << after.error().message();
  for (uint16_t value : after->processes[0].record.history_permille) EXPECT_EQ(value, 25);
}

TEST(StatusJson, RefusesWhatIsNotAStatus) {
  for (const char* text :
       {"", "{", "[]", "7", "{}", R"({"agent":1,"gpus":[],"tenants":[],"processes":[]})",
        R"({"agent":{"pid":"x"},"gpus":[],"tenants":[],"processes":[]})",
        R"({"agent":{},"gpus":{},"tenants":[],"processes":[]})",
        R"({"agent":{},"gpus":[],"tenants":[],"processes":[{"state":"asleep"}]})",
        R"({"agent":{},"gpus":[],"tenants":[],"processes":[{"share_pct":1e300}]})",
        R"({"agent":{},"gpus":[],"tenants":[{"gpus":[{"gpu":99}]}],"processes":[]})"}) {
    const auto result = parse_status_json(text);
    ASSERT_FALSE(result) << text;
    EXPECT_EQ(result.error().code, std::errc::invalid_argument) << text;
    EXPECT_FALSE(result.error().detail.empty()) << text;
  }
}

}  // namespace
}  // namespace gpushare
