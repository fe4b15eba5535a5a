// SPDX-License-Identifier: Apache-2.0
#include "sched/policy/tenant_tree.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "sched/policy/shares.h"

namespace gpushare {
namespace {

// A tree that is written down, and what `fair` would give each of its tenants that have work.
class TenantTreeTest : public testing::Test {
 protected:
  struct Told {
    uint32_t above;  // its id; the own one: at the top
    uint32_t weight;
    double cap = 1;
    bool is_active = true;
    Priority priority = Priority::kNormal;
  };

  void tell(std::map<uint32_t, Told> tree) {
    told_ = std::move(tree);
    std::vector<TreeTenant> tenants;
    views_.clear();
    std::vector<bool> active;
    for (const auto& [id, one] : told_) {
      tenants.push_back({.id = id,
                         .above = one.above == id ? std::nullopt : std::optional(one.above),
                         .weight = static_cast<double>(one.weight),
                         .ceiling = one.cap});
      TenantView& view = views_.emplace_back();
      view.id = id;
      view.weight = static_cast<double>(one.weight);
      view.priority = one.priority;
      active.push_back(one.is_active);
    }
    lay_flat(tenants, active, views_);
  }
  const TenantView& view(uint32_t id) const {
    return *std::ranges::find(views_, id, &TenantView::id);
  }
  // Of those of a class that have work, side by side by their weights and ceilings.
  std::map<uint32_t, double> shares(Priority priority = Priority::kNormal) const {
    std::vector<uint32_t> ids;
    std::vector<Demand> demands;
    for (const auto& [id, one] : told_) {
      if (!one.is_active || one.priority != priority) continue;
      ids.push_back(id);
      demands.push_back({.weight = static_cast<double>(view(id).weight),
                         .ceiling = std::min(one.cap, view(id).ceiling)});
    }
    std::vector<double> found(ids.size());
    divide(1, demands, found);
    std::map<uint32_t, double> shares;
    for (size_t i = 0; i < ids.size(); ++i) shares[ids[i]] = found[i];
    return shares;
  }
  void expect(const std::map<uint32_t, double>& wanted, Priority priority = Priority::kNormal) {
    const auto found = shares(priority);
    ASSERT_EQ(found.size(), wanted.size());
    for (const auto& [id, share] : wanted)
      EXPECT_NEAR(found.at(id), share, 1e-5) << "tenant " << id;
  }

  std::map<uint32_t, Told> told_;
  std::vector<TenantView> views_;
};

constexpr uint32_t kTeam = 1, kLab = 2, kA = 3, kB = 4, kDeep = 5;

TEST_F(TenantTreeTest, AWeightDividesWhatTheOneAboveHas) {
  tell({{kTeam, {kTeam, 300, 1, false}},
        {kLab, {kLab, 100}},
        {kA, {kTeam, 100}},
        {kB, {kTeam, 300}}});
  expect({{kLab, 0.25}, {kA, 0.1875}, {kB, 0.5625}});
}

TEST_F(TenantTreeTest, WhoHasNoWorkLeavesItsPartToTheOthersOfItsTree) {
  tell({{kTeam, {kTeam, 300, 1, false}},
        {kLab, {kLab, 100}},
        {kA, {kTeam, 100}},
        {kB, {kTeam, 300, 1, false}}});
  expect({{kLab, 0.25}, {kA, 0.75}});
  tell({{kTeam, {kTeam, 300, 1, false}}, {kLab, {kLab, 100}}, {kA, {kTeam, 100, 1, false}}});
  expect({{kLab, 1}});
}

TEST_F(TenantTreeTest, TheProcessesOfOneAboveOthersAreOneOfThem) {
  tell({{kTeam, {kTeam, 100}}, {kLab, {kLab, 100}}, {kA, {kTeam, 300}}});
  expect({{kTeam, 0.125}, {kLab, 0.5}, {kA, 0.375}});
}

TEST_F(TenantTreeTest, ACapHoldsForAllBelowTogether) {
  tell({{kTeam, {kTeam, 300, 0.3, false}},
        {kLab, {kLab, 100}},
        {kA, {kTeam, 100}},
        {kB, {kTeam, 200}}});
  expect({{kLab, 0.7}, {kA, 0.1}, {kB, 0.2}});
  tell({{kTeam, {kTeam, 300, 0.3, false}}, {kA, {kTeam, 100}}, {kB, {kTeam, 200}}});
  expect({{kA, 0.1}, {kB, 0.2}});
}

TEST_F(TenantTreeTest, WhatACapLeavesStaysInItsTreeFirst) {
  tell({{kTeam, {kTeam, 100, 1, false}},
        {kLab, {kLab, 100}},
        {kA, {kTeam, 100, 0.1}},
        {kB, {kTeam, 100}}});
  expect({{kLab, 0.5}, {kA, 0.1}, {kB, 0.4}});
  tell({{kTeam, {kTeam, 100, 1, false}},
        {kLab, {kLab, 100}},
        {kA, {kTeam, 100, 0.1}},
        {kB, {kTeam, 100, 0.2}}});
  expect({{kLab, 0.7}, {kA, 0.1}, {kB, 0.2}});
}

TEST_F(TenantTreeTest, EachClassIsDividedForItself) {
  tell({{kTeam, {kTeam, 100, 1, false}},
        {kLab, {kLab, 100, 1, true, Priority::kIdle}},
        {kA, {kTeam, 100}},
        {kB, {kTeam, 100, 1, true, Priority::kIdle}},
        {kDeep, {kTeam, 300, 1, true, Priority::kIdle}}});
  expect({{kA, 1}});
  expect({{kLab, 0.5}, {kB, 0.125}, {kDeep, 0.375}}, Priority::kIdle);
}

TEST_F(TenantTreeTest, WhoHasNoWorkHasTheWeightThatWouldGiveItItsPart) {
  tell({{kTeam, {kTeam, 100, 1, false}},
        {kLab, {kLab, 300}},
        {kA, {kTeam, 100}},
        {kB, {kTeam, 100, 1, false}}});
  double sum = view(kB).weight;
  for (const auto& [id, share] : shares()) sum += view(id).weight;
  EXPECT_NEAR(view(kB).weight / sum, 0.125, 1e-5);
}

// In every tree: all time is given away unless caps forbid it; nobody passes a cap, its own or one
// above; of two with work below the same one, neither of which is held by a cap at or below it, the
// shares are as the weights.
TEST_F(TenantTreeTest, HoldsItsRulesInAnyTree) {
  std::mt19937 random(7);
  const auto one_of = [&](uint32_t n) {
    return std::uniform_int_distribution<uint32_t>(0, n - 1)(random);
  };
  for (int round = 0; round < 2000; ++round) {
    std::map<uint32_t, Told> tree;
    const uint32_t n = 1 + one_of(9);
    for (uint32_t id = 0; id < n; ++id) {
      // At most four deep.
      uint32_t above = id == 0 || one_of(3) == 0 ? id : one_of(id), depth = 1;
      for (uint32_t at = above; at != id && tree[at].above != at; at = tree[at].above) ++depth;
      if (depth > 3) above = id;
      tree[id] = {.above = above,
                  .weight = 1 + one_of(1000),
                  .cap = one_of(3) == 0 ? (1 + one_of(99)) / 100.0 : 1,
                  .is_active = one_of(3) != 0};
    }
    tell(tree);
    const auto found = shares();
    std::map<uint32_t, double> inclusive = found;
    for (const auto& [id, share] : found)
      for (uint32_t at = id; tree[at].above != at;) inclusive[at = tree[at].above] += share;
    // What the tree can take at all, from below.
    const auto capacity = [&](const auto& self, uint32_t id) -> double {
      double sum = tree[id].is_active ? 1 : 0;
      for (const auto& [other, one] : tree)
        if (one.above == id && other != id) sum += self(self, other);
      return std::min(sum, tree[id].cap);
    };
    double sum = 0, most = 0;
    for (const auto& [id, one] : tree) {
      if (one.above == id) most += capacity(capacity, id);
      if (one.above == id && inclusive.contains(id)) sum += inclusive[id];
      EXPECT_LE(inclusive[id], one.cap + 1e-4) << round;
    }
    EXPECT_NEAR(sum, std::min(most, 1.0), 1e-4) << round;
    for (const auto& [id, one] : tree) {
      for (const auto& [other, its] : tree) {
        const bool are_siblings = (one.above == id ? its.above == other : its.above == one.above) &&
                                  other != id && (its.above == other) == (one.above == id);
        const auto is_free = [&](uint32_t which) {
          return inclusive[which] > 0 && inclusive[which] < capacity(capacity, which) - 1e-3;
        };
        if (!are_siblings || !is_free(id) || !is_free(other)) continue;
        EXPECT_NEAR(inclusive[id] / one.weight, inclusive[other] / its.weight, 2e-5) << round;
      }
    }
  }
}

}  // namespace
}  // namespace gpushare
