// SPDX-License-Identifier: Apache-2.0
// What the module's attributes take, and whether it means the same to the agent.
#include "kmod/members/settings.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

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
         a.length_us == b.length_us && a.iterations == b.iterations && a.phase == b.phase &&
         a.gang == b.gang && a.sm_min == b.sm_min && a.sm_shown == b.sm_shown &&
         a.memory_max == b.memory_max;
}

using Texts = std::vector<std::string_view>;

void expect_result(Parser parse, int result, const Texts& texts) {
  for (const std::string_view text : texts) {
    gs_settings settings = defaults();
    EXPECT_EQ(parse(&settings, text.data(), text.size()), result) << '"' << text << '"';
    if (result != 0) EXPECT_TRUE(same(settings, defaults())) << '"' << text << "\" half applied";
  }
}

struct Row {
  const char* name;
  Parser parse;
  Texts taken, out_of_range, not_understood;
};

class KmodSettings : public testing::TestWithParam<Row> {};

TEST_P(KmodSettings, TakeOrRefuse) {
  const Row& row = GetParam();
  expect_result(row.parse, 0, row.taken);
  expect_result(row.parse, -ERANGE, row.out_of_range);
  expect_result(row.parse, -EINVAL, row.not_understood);
}

INSTANTIATE_TEST_SUITE_P(
    All, KmodSettings,
    testing::Values(
        // The last two weights do not fit into 32 and 64 bits.
        Row{"weight",
            gs_parse_weight,
            {"1", "10000"},
            {"0", "10001", "4294967297", "18446744073709551717"},
            {"-1", "+1", "0x10", "", "5 ", "max"}},
        // A quota alone is compared with the period that is kept, 100000.
        Row{"max",
            gs_parse_max,
            {"max", "30000 100000", "100000 100000", "30000", "max 50000"},
            {"100001 100000", "100001", "999 100000", "1000 999", "1000 1000001"},
            {"1000  2000", "1000 2000 3000", "1000 ", " 1000", "", "30%"}},
        Row{"priority", gs_parse_priority, {"idle", "high"}, {}, {"Idle", "idl"}},
        // The last number stands for no limit.
        Row{"memory_max",
            gs_parse_memory_max,
            {"max", "1", "8G", "16777215T"},
            {"0", "16777216T", "18446744073709551615"},
            {"G", "1GB"}},
        Row{"sm_percent", gs_parse_sm_percent, {"max", "100"}, {"0", "101"}, {}},
        Row{"slo_us", gs_parse_slo_us, {"0", "1000000000"}, {"1000000001"}, {}},
        Row{"length_us", gs_parse_length_us, {"0", "1000000000000"}, {"1000000000001"}, {}},
        Row{"iterations", gs_parse_iterations, {"0", "1000000000000"}, {"1000000000001"}, {}},
        Row{"phase", gs_parse_phase, {"auto", "prefill", "none"}, {}, {"Decode", "dec", "1"}},
        Row{"gang", gs_parse_gang, {"auto", "true", "false"}, {}, {"True", "yes", "1"}},
        Row{"sm_min", gs_parse_sm_min, {"0", "100"}, {"101"}, {"max", "50%", ""}},
        Row{"sm_shown", gs_parse_sm_shown, {"true", "false"}, {}, {"True", "auto", "1"}}),
    [](const testing::TestParamInfo<Row>& row) { return std::string(row.param.name); });

TEST(KmodSettings, AQuotaAloneKeepsThePeriod) {
  gs_settings settings = defaults();
  ASSERT_EQ(gs_parse_max(&settings, "max 50000", 9), 0);
  ASSERT_EQ(gs_parse_max(&settings, "20000", 5), 0);
  EXPECT_EQ(settings.quota_us, 20'000u);
  EXPECT_EQ(settings.period_us, 50'000u);
}

// The agent reads from sysfs what an operator wrote there, and takes it as it is shown.
TEST(KmodSettings, MeanTheSameToTheAgent) {
  const auto each = [](const char* key, Parser parse, const Texts& texts, auto compare) {
    for (const std::string_view text : texts) {
      gs_settings kernel = defaults();
      TenantSettings agent;
      EXPECT_EQ(parse(&kernel, text.data(), text.size()), 0) << text;
      EXPECT_TRUE(apply_setting(agent, key, text)) << key << ' ' << text;
      compare(kernel, agent);
    }
  };
  each("weight", gs_parse_weight, {"1", "300", "10000"},
       [](auto& kernel, auto& agent) { EXPECT_EQ(kernel.weight, agent.weight); });
  each("max", gs_parse_max, {"30000 100000", "1000 1000", "1000000 1000000"},
       [](auto& kernel, auto& agent) {
         ASSERT_TRUE(agent.cap);
         EXPECT_EQ(kernel.quota_us, agent.cap->quota.count());
         EXPECT_EQ(kernel.period_us, agent.cap->period.count());
       });
  each("priority", gs_parse_priority, {"idle", "normal", "high"}, [](auto& kernel, auto& agent) {
    EXPECT_EQ(gs_priority_name(kernel.priority), priority_name(agent.priority));
  });
  each("memory_max", gs_parse_memory_max, {"1", "4096", "64k", "64K", "8G", "1T"},
       [](auto& kernel, auto& agent) { EXPECT_EQ(kernel.memory_max, agent.memory_max); });
  each("sm_percent", gs_parse_sm_percent, {"1", "50", "100"},
       [](auto& kernel, auto& agent) { EXPECT_EQ(kernel.sm_percent, agent.sm_percent); });
  each("sm_min", gs_parse_sm_min, {"0", "50", "100"},
       [](auto& kernel, auto& agent) { EXPECT_EQ(kernel.sm_min, agent.sm_min); });
  each("sm_shown", gs_parse_sm_shown, {"true", "false"}, [](auto& kernel, auto& agent) {
    EXPECT_EQ(kernel.sm_shown == GS_SM_SHOWN_TRUE, agent.sm_shown);
  });
  each("slo_us", gs_parse_slo_us, {"0", "2000", "1000000000"},
       [](auto& kernel, auto& agent) { EXPECT_EQ(kernel.slo_us, agent.slo.count()); });
  each("length_us", gs_parse_length_us, {"0", "2000", "1000000000000"},
       [](auto& kernel, auto& agent) { EXPECT_EQ(kernel.length_us, agent.length.count()); });
  each("iterations", gs_parse_iterations, {"0", "2000", "1000000000000"},
       [](auto& kernel, auto& agent) { EXPECT_EQ(kernel.iterations, agent.iterations); });
  each("phase", gs_parse_phase, {"auto", "prefill", "decode", "none"},
       [](auto& kernel, auto& agent) {
         EXPECT_EQ(gs_phase_name(kernel.phase), phase_name(agent.phase));
       });
}

TEST(KmodSettings, DefaultsAreTheAgents) {
  const gs_settings kernel = defaults();
  const TenantSettings agent;
  EXPECT_EQ(kernel.weight, agent.weight);
  EXPECT_EQ(gs_priority_name(kernel.priority), priority_name(agent.priority));
  EXPECT_EQ(gs_phase_name(kernel.phase), phase_name(agent.phase));
  EXPECT_EQ(kernel.slo_us, agent.slo.count());
  EXPECT_FALSE(agent.cap || agent.memory_max || agent.sm_percent);
  EXPECT_EQ(kernel.sm_min, agent.sm_min);
  EXPECT_EQ(kernel.sm_shown == GS_SM_SHOWN_TRUE, agent.sm_shown);
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
