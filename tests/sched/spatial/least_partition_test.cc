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
        Row{{.percent = 50, .as_share = 25}, 9, "the larger one"},
        Row{{.sms = 64, .wished_sms = 132}, 1, "what programs need is not asked for"}})
    EXPECT_EQ(groups_of_least(row.least, kH200), row.groups) << row.what;
  EXPECT_EQ(groups_of_sms(0, kH200), 0u);
  EXPECT_EQ(groups_of_sms(64, kH200), 8u);
  EXPECT_EQ(groups_of_sms(65, kH200), 9u);
  EXPECT_EQ(groups_of_sms(121, kH200), 16u) << "in all groups only";
  EXPECT_EQ(groups_of_sms(4000, kH200), 16u) << "more than there is";
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
  EXPECT_EQ(many.size(), 16u) << "one without a group would have the whole GPU";
  std::vector<PlannedSet> unequal{
      {.tenants = {1}, .groups = 7}, {.tenants = {2}, .groups = 1}, {.tenants = {3}, .groups = 1}};
  share_what_does_not_fit(unequal, 2);
  EXPECT_EQ(text_of(unequal), "1:7/1 2+3:2/1") << "the smallest share";
}

TEST(LeastPartition, NobodyLosesItsShareToWhatAnotherNeeds) {
  const auto granted = [](std::vector<PlannedSet> sets, const std::vector<SetNeeds>& needs) {
    grant_needs(sets, needs, 16);
    return text_of(sets);
  };
  const PlannedSet a{.tenants = {1}, .groups = 7}, b{.tenants = {2}, .groups = 9},
      c{.tenants = {3}, .groups = 2}, d{.tenants = {4}, .groups = 6};
  EXPECT_EQ(granted({a, b}, {{}, {.wished = 15}}), "1:7/1 2:9/1");
  EXPECT_EQ(granted({a, c}, {{}, {.wished = 15}}), "1:7/1 3:9/1") << "what nobody else has";
  EXPECT_EQ(granted({c}, {{.wished = 15}}), "3:15/1");
  EXPECT_EQ(granted({a, b}, {{}, {.at_once = 9}}), "1:7/1 2:9/9") << "it is entitled to them";
  EXPECT_EQ(granted({a, b}, {{}, {.at_once = 15}}), "2+1:16/15");
  EXPECT_EQ(granted({a, c}, {{}, {.at_once = 9}}), "1:7/1 3:9/9") << "what nobody else has";
  EXPECT_EQ(granted({c, a, d}, {{.at_once = 8}, {}, {}}), "3+1:9/8 4:6/1");
  EXPECT_EQ(granted({b, b}, {{.at_once = 9}, {}}), "2+2:16/9") << "it gets 8 of what is planned";
  const PlannedSet all{.tenants = {5}, .groups = 16}, quarter{.tenants = {6}, .groups = 4},
      half_at_least{.tenants = {7}, .groups = 2, .least = 9};
  EXPECT_EQ(granted({all, all, all}, {{.at_once = 10}, {}, {}}), "5+5:11/10 5:5/1");
  EXPECT_EQ(granted({quarter, quarter}, {{.wished = 12}, {.at_once = 8}}), "6:8/1 6:8/8");
  EXPECT_EQ(granted({quarter, quarter}, {{.at_once = 8}, {.wished = 12}}), "6:8/8 6:8/1")
      << "a wish does not come before a need";
  EXPECT_EQ(granted({a, half_at_least, quarter}, {{.wished = 16}, {}, {}}), "1:7/1 7:2/9 6:4/1")
      << "what is asked for with sm_min is another's, too";
  EXPECT_EQ(granted({c, a, b}, {{}, {}, {.at_once = 99}}), "2+1+3:16/16");
  EXPECT_EQ(granted({c, a, b}, {{.at_once = 16}, {.at_once = 16}, {}}), "3+2+1:16/16");
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
