// SPDX-License-Identifier: Apache-2.0
// What the module's attributes take, and that it means the same to the agent.
#include "kmod/state/settings.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <string_view>

#include "shmctl/plane/layout.h"
#include "shmctl/settings/tenant_settings.h"

namespace gpushare {
namespace {

using Parser = int (*)(gs_settings*, const char*, size_t);

gs_settings defaults() {
  gs_settings settings;
  gs_settings_init(&settings);
  return settings;
}

bool same(const gs_settings& a, const gs_settings& b) {
  return a.weight == b.weight && a.quota_us == b.quota_us && a.period_us == b.period_us &&
         a.priority == b.priority && a.sm_percent == b.sm_percent && a.slo_us == b.slo_us &&
         a.memory_max == b.memory_max;
}

struct Row {
  const char* description;
  Parser parse;
  const char* text;
  int result;
};

class KmodSettings : public testing::TestWithParam<Row> {};

TEST_P(KmodSettings, TakeOrRefuse) {
  const Row& row = GetParam();
  gs_settings settings = defaults();
  const std::string_view text = row.text;
  EXPECT_EQ(row.parse(&settings, text.data(), text.size()), row.result);
  if (row.result != 0) {
    EXPECT_TRUE(same(settings, defaults())) << "half applied";
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, KmodSettings,
    testing::Values(
        Row{"lowest weight", gs_parse_weight, "1", 0},
        Row{"highest weight", gs_parse_weight, "10000", 0},
        Row{"weight of nothing", gs_parse_weight, "0", -ERANGE},
        Row{"too much weight", gs_parse_weight, "10001", -ERANGE},
        Row{"weight beyond 32 bits", gs_parse_weight, "4294967297", -ERANGE},
        Row{"weight beyond 64 bits", gs_parse_weight, "18446744073709551717", -ERANGE},
        Row{"negative weight", gs_parse_weight, "-1", -EINVAL},
        Row{"signed weight", gs_parse_weight, "+1", -EINVAL},
        Row{"hexadecimal weight", gs_parse_weight, "0x10", -EINVAL},
        Row{"empty weight", gs_parse_weight, "", -EINVAL},
        Row{"blank behind", gs_parse_weight, "5 ", -EINVAL},
        Row{"a word", gs_parse_weight, "max", -EINVAL}, Row{"no cap", gs_parse_max, "max", 0},
        Row{"cap and period", gs_parse_max, "30000 100000", 0},
        Row{"all of the period", gs_parse_max, "100000 100000", 0},
        Row{"period kept", gs_parse_max, "30000", 0},
        Row{"no cap, a period", gs_parse_max, "max 50000", 0},
        Row{"more than the period", gs_parse_max, "100001 100000", -ERANGE},
        Row{"more than the kept period", gs_parse_max, "100001", -ERANGE},
        Row{"quota too short", gs_parse_max, "999 100000", -ERANGE},
        Row{"period too short", gs_parse_max, "1000 999", -ERANGE},
        Row{"period too long", gs_parse_max, "1000 1000001", -ERANGE},
        Row{"two blanks", gs_parse_max, "1000  2000", -EINVAL},
        Row{"three numbers", gs_parse_max, "1000 2000 3000", -EINVAL},
        Row{"no period behind the blank", gs_parse_max, "1000 ", -EINVAL},
        Row{"no quota before the blank", gs_parse_max, " 1000", -EINVAL},
        Row{"empty cap", gs_parse_max, "", -EINVAL}, Row{"percent", gs_parse_max, "30%", -EINVAL},
        Row{"idle", gs_parse_priority, "idle", 0}, Row{"high", gs_parse_priority, "high", 0},
        Row{"capital", gs_parse_priority, "Idle", -EINVAL},
        Row{"prefix", gs_parse_priority, "idl", -EINVAL},
        Row{"no limit", gs_parse_memory_max, "max", 0}, Row{"bytes", gs_parse_memory_max, "1", 0},
        Row{"suffix", gs_parse_memory_max, "8G", 0},
        Row{"most terabytes", gs_parse_memory_max, "16777215T", 0},
        Row{"no bytes", gs_parse_memory_max, "0", -ERANGE},
        Row{"too many terabytes", gs_parse_memory_max, "16777216T", -ERANGE},
        Row{"the number for none", gs_parse_memory_max, "18446744073709551615", -ERANGE},
        Row{"suffix alone", gs_parse_memory_max, "G", -EINVAL},
        Row{"two suffixes", gs_parse_memory_max, "1GB", -EINVAL},
        Row{"all multiprocessors", gs_parse_sm_percent, "max", 0},
        Row{"part", gs_parse_sm_percent, "100", 0}, Row{"none", gs_parse_sm_percent, "0", -ERANGE},
        Row{"more than all", gs_parse_sm_percent, "101", -ERANGE},
        Row{"no target", gs_parse_slo_us, "0", 0},
        Row{"longest target", gs_parse_slo_us, "1000000000", 0},
        Row{"too long", gs_parse_slo_us, "1000000001", -ERANGE}),
    [](const testing::TestParamInfo<Row>& row) {
      std::string name;
      for (const char c : std::string_view(row.param.description))
        name += isalnum(static_cast<unsigned char>(c)) ? c : '_';
      return name + "_" + std::to_string(row.index);
    });

TEST(KmodSettings, AQuotaAloneKeepsThePeriod) {
  gs_settings settings = defaults();
  ASSERT_EQ(gs_parse_max(&settings, "max 50000", 9), 0);
  ASSERT_EQ(gs_parse_max(&settings, "20000", 5), 0);
  EXPECT_EQ(settings.quota_us, 20'000u);
  EXPECT_EQ(settings.period_us, 50'000u);
}

// What an operator writes into sysfs the agent reads from there and takes as it is shown.
TEST(KmodSettings, MeanTheSameToTheAgent) {
  const auto both = [](const char* key, Parser parse, std::string_view text) {
    gs_settings kernel = defaults();
    TenantSettings agent;
    EXPECT_EQ(parse(&kernel, text.data(), text.size()), 0) << text;
    EXPECT_TRUE(apply_setting(agent, key, text)) << key << ' ' << text;
    return std::pair(kernel, agent);
  };
  for (const char* text : {"1", "300", "10000"}) {
    const auto [kernel, agent] = both("weight", gs_parse_weight, text);
    EXPECT_EQ(kernel.weight, agent.weight);
  }
  for (const char* text : {"30000 100000", "1000 1000", "1000000 1000000"}) {
    const auto [kernel, agent] = both("max", gs_parse_max, text);
    ASSERT_TRUE(agent.cap);
    EXPECT_EQ(kernel.quota_us, agent.cap->quota.count());
    EXPECT_EQ(kernel.period_us, agent.cap->period.count());
  }
  for (const char* text : {"idle", "normal", "high"}) {
    const auto [kernel, agent] = both("priority", gs_parse_priority, text);
    EXPECT_EQ(gs_priority_name(kernel.priority), priority_name(agent.priority));
  }
  for (const char* text : {"1", "4096", "64k", "64K", "8G", "1T"}) {
    const auto [kernel, agent] = both("memory_max", gs_parse_memory_max, text);
    EXPECT_EQ(kernel.memory_max, agent.memory_max);
  }
  for (const char* text : {"1", "50", "100"}) {
    const auto [kernel, agent] = both("sm_percent", gs_parse_sm_percent, text);
    EXPECT_EQ(kernel.sm_percent, agent.sm_percent);
  }
  for (const char* text : {"0", "2000", "1000000000"}) {
    const auto [kernel, agent] = both("slo_us", gs_parse_slo_us, text);
    EXPECT_EQ(kernel.slo_us, agent.slo.count());
  }
}

TEST(KmodSettings, DefaultsAreTheAgents) {
  const gs_settings kernel = defaults();
  const TenantSettings agent;
  EXPECT_EQ(kernel.weight, agent.weight);
  EXPECT_EQ(gs_priority_name(kernel.priority), priority_name(agent.priority));
  EXPECT_EQ(kernel.slo_us, agent.slo.count());
  EXPECT_FALSE(agent.cap || agent.memory_max || agent.sm_percent);
  EXPECT_EQ(kernel.quota_us, static_cast<__u32>(GS_QUOTA_NONE));
  EXPECT_EQ(kernel.sm_percent, static_cast<__u32>(GS_SM_NONE));
  EXPECT_EQ(kernel.memory_max, GS_MEMORY_NONE);
}

TEST(KmodBudget, HoldsTheLimitWithoutOverflow) {
  EXPECT_TRUE(gs_budget_fits(0, 0, 0));
  EXPECT_TRUE(gs_budget_fits(60, 40, 100));
  EXPECT_FALSE(gs_budget_fits(60, 41, 100));
  EXPECT_FALSE(gs_budget_fits(200, 1, 100)) << "held more before the limit came";
  EXPECT_FALSE(gs_budget_fits(1, ~0ULL, ~0ULL));
  EXPECT_TRUE(gs_budget_fits(1, ~0ULL - 1, ~0ULL));
}

}  // namespace
}  // namespace gpushare
