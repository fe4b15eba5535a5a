// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/least_partition.h"

#include <gtest/gtest.h>

#include <string>

namespace gpushare {
namespace {

const SmGeometry kH200;  // 15 groups of 8 SMs and one of 12

TEST(LeastPartition, IsInWholeGroupsThatSurelyHaveIt) {
  struct Row {
    LeastPartition least;
    uint32_t groups;
    const char* what;
  };
  for (const Row& row :
       {Row{{}, 1, "nothing is asked for"}, Row{{.percent = 6}, 1, "8 of 132 SMs"},
        Row{{.percent = 7}, 2, "10 SMs, rounded up"},
        Row{{.percent = 50}, 9, "66 SMs do not fit into 8 groups of 8"},
        Row{{.percent = 100}, 16, "all"}, Row{{.as_share = 50}, 8, "as sm_percent = 50"},
        Row{{.percent = 50, .as_share = 25}, 9, "the larger one"}, Row{{.sms = 64}, 8, "64 SMs"},
        Row{{.sms = 65}, 9, "65 SMs"}, Row{{.sms = 121}, 16, "121 SMs are in all groups only"},
        Row{{.sms = 4000}, 16, "more than there is"}})
    EXPECT_EQ(groups_of_least(row.least, kH200), row.groups) << row.what;
}

TEST(LeastPartition, ProgramsAreShownWhatTheirTenantAsksFor) {
  TenantSettings settings;
  settings.sm_percent = 50;
  settings.sm_min = 75;
  EXPECT_EQ(shown_partition(settings), LeastPartition{}) << "not asked for";
  settings.sm_shown = true;
  EXPECT_EQ(groups_of_least(shown_partition(settings), kH200), 13u);
  settings.sm_min = 0;
  EXPECT_EQ(groups_of_least(shown_partition(settings), kH200), 8u);
  settings.sm_percent.reset();
  EXPECT_EQ(shown_partition(settings), LeastPartition{}) << "it may have the whole GPU";
}

std::string text_of(const std::vector<PlannedSet>& sets) {
  std::string text;
  for (const PlannedSet& set : sets) {
    text += text.empty() ? "" : " ";
    for (const uint32_t tenant : set.tenants) text += std::to_string(tenant) + "+";
    text.back() = ':';
    text += std::to_string(set.groups) + "/" + std::to_string(set.least);
  }
  return text;
}

TEST(LeastPartition, WhatDoesNotFitSharesOneSet) {
  const auto shared = [](std::vector<PlannedSet> sets) {
    share_what_does_not_fit(sets, 16);
    return text_of(sets);
  };
  EXPECT_EQ(shared({{.tenants = {1}, .groups = 8, .least = 8}, {.tenants = {2}, .groups = 8}}),
            "1:8/8 2:8/1");
  EXPECT_EQ(shared({{.tenants = {1}, .groups = 12, .least = 12},
                    {.tenants = {2}, .groups = 8, .least = 8},
                    {.tenants = {3}, .groups = 4}}),
            "1+2:16/12 3:4/1");
  EXPECT_EQ(shared({{.tenants = {1}, .groups = 16, .least = 99}, {.tenants = {2}, .groups = 4}}),
            "1+2:16/16")
      << "nobody is left with nothing";
  std::vector<PlannedSet> many;
  for (uint32_t tenant = 0; tenant < 20; ++tenant) many.push_back({.tenants = {tenant}});
  share_what_does_not_fit(many, 16);
  EXPECT_EQ(many.size(), 20u) << "none of them asks for more than one group";
}

TEST(LeastPartition, AnIdleOneThatSharesWithOneAtWorkLendsNothing) {
  std::vector<PlannedSet> sets{
      {.tenants = {1}, .groups = 9, .is_idle = true, .can_borrow = false, .least = 9},
      {.tenants = {2}, .groups = 9, .least = 9}};
  share_what_does_not_fit(sets, 16);
  ASSERT_EQ(sets.size(), 1u);
  EXPECT_FALSE(sets[0].is_idle);
  EXPECT_TRUE(sets[0].can_borrow);
}

}  // namespace
}  // namespace gpushare
