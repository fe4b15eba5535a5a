// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/sm_sets.h"

#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <random>
#include <utility>

namespace gpushare {
namespace {

constexpr SmGeometry kFifteen{.groups = 15, .sms = 120};

using Planned = std::vector<PlannedSet>;

int count(SmGroups groups) { return std::popcount(groups); }

// Everybody answers at once.
void settle(SmSets& sets) {
  for (int round = 0; round < 20; ++round)
    for (const Assignment& assignment : sets.take_assignments())
      sets.confirm(assignment.to, assignment.groups);
}

TEST(SmSets, TenantsThatShareGetTheSameGroups) {
  SmSets sets(kFifteen);
  const auto sizes = sets.plan(Planned{{.tenants = {1, 2}, .groups = 10, .can_borrow = false},
                                       {.tenants = {3}, .groups = 5, .can_borrow = false}});
  settle(sets);
  EXPECT_EQ(sets.in_use(1), sets.in_use(2));
  EXPECT_EQ(count(sets.in_use(1)), 10);
  EXPECT_EQ(count(sets.in_use(3)), 5);
  EXPECT_EQ(sets.in_use(1) & sets.in_use(3), 0U);
  EXPECT_EQ(sizes.at(1), (SetSize{10, 10, 2, sizes.at(2).set}));
  EXPECT_EQ(sizes.at(3), (SetSize{5, 5, 1, sizes.at(3).set}));
  EXPECT_NE(sizes.at(3).set, sizes.at(1).set);
  EXPECT_TRUE(sets.is_settled());
}

TEST(SmSets, WhoJoinsGivesUpItsOwnOnlyWhenItHasAnswered) {
  SmSets sets(kFifteen);
  sets.plan(Planned{{.tenants = {1}, .groups = 10}, {.tenants = {2}, .groups = 5}});
  settle(sets);
  const SmGroups large = sets.in_use(1), small = sets.in_use(2);

  sets.plan(Planned{{.tenants = {1, 2}, .groups = 12, .can_borrow = false}});
  const auto first = sets.take_assignments();
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0], (Assignment{2, large})) << "the larger set is kept";
  EXPECT_EQ(sets.in_use(2), large | small);
  EXPECT_TRUE(sets.take_assignments().empty());

  sets.confirm(2, large);
  const auto second = sets.take_assignments();
  ASSERT_EQ(second.size(), 2U);
  EXPECT_EQ(count(second[0].groups), 12);
  EXPECT_EQ(second[0].groups, second[1].groups);
}

TEST(SmSets, WhoLeavesStaysUntilItsOwnSetIsThere) {
  SmSets sets(kFifteen);
  sets.plan(Planned{{.tenants = {1, 2}, .groups = 15}});
  settle(sets);
  sets.plan(Planned{{.tenants = {1}, .groups = 7}, {.tenants = {2}, .groups = 8}});
  const auto first = sets.take_assignments();  // both shrink together
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[0].groups, first[1].groups);
  sets.confirm(1, first[0].groups);
  EXPECT_TRUE(sets.take_assignments().empty());
  sets.confirm(2, first[1].groups);
  const auto second = sets.take_assignments();
  ASSERT_EQ(second.size(), 1U) << "now there is room for the set of one";
  EXPECT_EQ(second[0].groups & first[0].groups, 0U);
  sets.confirm(second[0].to, second[0].groups);
  settle(sets);
  EXPECT_TRUE(sets.is_settled());
  EXPECT_EQ(count(sets.in_use(1)) + count(sets.in_use(2)), 15);
}

TEST(SmSets, OneThatEndsTakesNothingWithItThatOthersUse) {
  SmSets sets(kFifteen);
  sets.plan(Planned{{.tenants = {1, 2}, .groups = 9, .can_borrow = false}});
  settle(sets);
  const SmGroups before = sets.in_use(2);
  sets.plan(Planned{{.tenants = {2}, .groups = 9, .can_borrow = false}});
  EXPECT_TRUE(sets.take_assignments().empty());
  EXPECT_EQ(sets.in_use(2), before);
  EXPECT_EQ(sets.in_use(1), 0U);
}

// Tenants come, end, are put together and taken apart, and answer late or not at all.
class RandomLife {
 public:
  explicit RandomLife(uint64_t seed) : random_(seed) {}

  void change() {
    if (tenants_.size() < 8 && random_() % 2 == 0) tenants_.insert({next_++, {}});
    if (!tenants_.empty() && random_() % 6 == 0) tenants_.erase(any());
    if (!tenants_.empty() && random_() % 10 == 0) any()->second.is_silent = true;
    planned_.clear();
    std::map<uint64_t, PlannedSet> by_set;
    for (const auto& [id, tenant] : tenants_)
      by_set[uint64_t{id % 2} * 10 + random_() % 3].tenants.push_back(id);
    for (auto& [set, one] : by_set) {
      one.groups = 1 + static_cast<uint32_t>(random_() % 15);
      one.is_idle = random_() % 4 == 0;
      one.can_borrow = random_() % 3 != 0;
      planned_.push_back(one);
    }
    sets_.plan(planned_);
  }
  void step(bool is_last) {
    for (const Assignment& assignment : sets_.take_assignments()) {
      Tenant& tenant = tenants_.at(assignment.to);
      EXPECT_EQ(tenant.assigned, 0U) << "one assignment at a time";
      tenant.assigned = assignment.groups;
    }
    for (auto& [id, tenant] : tenants_) {
      if (tenant.assigned == 0 || (!is_last && (tenant.is_silent || random_() % 3 == 0))) continue;
      tenant.runs_on = std::exchange(tenant.assigned, 0);
      sets_.confirm(id, tenant.runs_on);
    }
  }
  // Odd and even ones are never planned together, and so share nothing, also on the way.
  void expect_apart() const {
    for (const auto& [a, one] : tenants_)
      for (const auto& [b, other] : tenants_)
        if (a % 2 < b % 2) {
          EXPECT_EQ((one.runs_on | one.assigned) & (other.runs_on | other.assigned), 0U)
              << a << " " << b;
        }
  }
  void expect_right() const {
    ASSERT_TRUE(sets_.is_settled());
    SmGroups all = 0;
    for (const PlannedSet& one : planned_) {
      const SmGroups groups = tenants_.at(one.tenants.front()).runs_on;
      EXPECT_NE(groups, 0U);
      EXPECT_EQ(groups & all, 0U) << "sets are disjoint";
      all |= groups;
      for (const uint32_t tenant : one.tenants) EXPECT_EQ(tenants_.at(tenant).runs_on, groups);
    }
  }

 private:
  struct Tenant {
    SmGroups runs_on = 0, assigned = 0;
    bool is_silent = false;
  };
  using Tenants = std::map<uint32_t, Tenant>;

  Tenants::iterator any() {
    return std::next(tenants_.begin(), static_cast<std::ptrdiff_t>(random_() % tenants_.size()));
  }

  std::mt19937_64 random_;
  SmSets sets_{kFifteen};
  Tenants tenants_;
  Planned planned_;
  uint32_t next_ = 1;
};

TEST(SmSets, WhateverHappensNobodyIsToldWhatAnotherSetUsesAndAllEndWhereTheyShall) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomLife life(seed);
    for (int change = 0; change < 30; ++change) {
      life.change();
      for (int step = 0; step < 3; ++step) {
        life.step(false);
        life.expect_apart();
      }
    }
    for (int step = 0; step < 20; ++step) {
      life.step(true);
      life.expect_apart();
    }
    life.expect_right();
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace gpushare
