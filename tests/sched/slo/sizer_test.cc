// SPDX-License-Identifier: Apache-2.0
#include "sched/slo/sizer.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <set>

#include "tests/sched/support/slo_step.h"

namespace gpushare {
namespace {

using std::chrono::milliseconds;

SloTenant closed_loop(uint32_t id, double seconds, uint32_t groups, Nanos slo) {
  SloTenant tenant;
  tenant.id = id;
  tenant.slo = slo;
  tenant.groups = groups;
  tenant.iterations = 100;
  tenant.latency = tenant.service = seconds;
  return tenant;
}

// Of the sets.
uint32_t sum_of(const std::vector<SloShare>& shares) {
  std::map<uint32_t, uint32_t> sets;
  for (const SloShare& share : shares) sets[share.set] = share.groups;
  return std::accumulate(sets.begin(), sets.end(), 0U,
                         [](uint32_t sum, const auto& set) { return sum + set.second; });
}

TEST(ServiceCurve, InterpolatesInOneOverGroupsAndExtrapolatesOnTheSafeSide) {
  ServiceCurve curve;
  curve.observe(10, 0.012);
  EXPECT_DOUBLE_EQ(curve.seconds(5), 0.024);   // at worst
  EXPECT_DOUBLE_EQ(curve.seconds(12), 0.010);  // at best
  curve.observe(4, 0.021);                     // 0.006 + 0.060 / groups
  EXPECT_NEAR(curve.seconds(6), 0.016, 1e-9);
  EXPECT_NEAR(curve.seconds(15), 0.010, 1e-9);
  EXPECT_DOUBLE_EQ(curve.seconds(2), 0.042);
}

TEST(ServiceCurve, WhatIsLikelyIsHalfWayBetweenTheBestAndTheWorst) {
  ServiceCurve curve;
  curve.observe(4, 0.010);
  EXPECT_DOUBLE_EQ(curve.seconds(1), 0.040);
  EXPECT_DOUBLE_EQ(curve.likely_seconds(1), 0.020);
  for (const uint32_t groups : {4U, 5U, 15U})
    EXPECT_DOUBLE_EQ(curve.likely_seconds(groups), curve.seconds(groups));
}

TEST(ServiceCurve, OtherWorkScalesAllOfIt) {
  ServiceCurve curve;
  curve.observe(4, 0.021);
  curve.observe(10, 0.012);
  curve.observe(10, 0.024);
  EXPECT_NEAR(curve.seconds(4), 0.042, 1e-9);
  EXPECT_NEAR(curve.seconds(10), 0.024, 1e-9);
}

// A measurement among others that were wrongly accounted for, say.
TEST(ServiceCurve, FewerSmsTakeAtMostTwiceWhatTheyTakeInProportion) {
  ServiceCurve curve;
  curve.observe(12, 0.5);
  curve.observe(13, 0.012);
  EXPECT_LE(curve.seconds(12), 2 * 0.012 * 13 / 12 + 1e-9);
  curve.observe(12, 0.5);
  EXPECT_GE(curve.seconds(13), curve.seconds(12) * 12 / 13 / 2 - 1e-9);
}

TEST(ServiceCurve, NeverSaysThatMoreSmsTakeLonger) {
  std::mt19937_64 random(5);
  for (int life = 0; life < 200; ++life) {
    ServiceCurve curve;
    for (int i = 0; i < 30; ++i) {
      curve.observe(1 + static_cast<uint32_t>(random() % 15),
                    1e-3 * static_cast<double>(1 + random() % 50));
      for (uint32_t groups = 1; groups < 15; ++groups)
        ASSERT_GE(curve.seconds(groups), curve.seconds(groups + 1) * (1 - 1e-9));
    }
  }
}

TEST(SloSizer, GrowsToWhatTheTargetNeedsAtOnce) {
  SloSizer policy(15);
  // 20 ms on 4 groups for 10 ms: 8.4 groups with the margin.
  const auto shares = policy.decide(std::vector{closed_loop(1, 0.020, 4, milliseconds(10))});
  EXPECT_EQ(shares[0], (SloShare{1, 9, 9, SloMove::kGrow}));
}

TEST(SloSizer, NothingMovesWithinTheDeadBand) {
  SloSizer policy(15);
  for (const double seconds : {0.0099, 0.0095, 0.0091}) {
    const auto shares = policy.decide(std::vector{closed_loop(1, seconds, 6, milliseconds(10))});
    EXPECT_EQ(shares[0], (SloShare{1, 6, 6, SloMove::kHold})) << seconds;
  }
}

TEST(SloSizer, ShrinksOnlyToWhereTheWorstCurveStillMeetsTheTarget) {
  SloSizer policy(15);
  const auto shares = policy.decide(std::vector{closed_loop(1, 0.004, 12, milliseconds(10))});
  EXPECT_EQ(shares[0].groups, 6U);  // 0.004 * 12 / 6 = 8 ms; 5 groups: 9.6 ms
  EXPECT_EQ(shares[0].move, SloMove::kShrink);
}

TEST(SloSizer, MoreThanTheKneeIsNeverGiven) {
  SloSizer policy(15);
  SloTenant tenant = closed_loop(1, 0.020, 4, milliseconds(10));
  tenant.knee = 6;
  EXPECT_EQ(policy.decide(std::vector{tenant})[0].groups, 6U);
}

TEST(SloSizer, OverloadIsSizedByWhatArrivesNotByTheQueue) {
  SloSizer policy(15);
  SloTenant tenant = closed_loop(1, 0.020, 5, milliseconds(100));
  tenant.latency = 30;  // a queue of minutes
  tenant.throughput = 50;
  tenant.arrivals = 60;
  // At 80 ms mean response: 0.020 * 5 / 7 = 14.3 ms a request, 86 % load, 57 ms; 6 groups: full.
  EXPECT_EQ(policy.decide(std::vector{tenant})[0].groups, 7U);
}

TEST(SloSizer, WhenSmsRunOutTheSmallDemandIsServedAndTheLargeOnesShareAlike) {
  SloSizer policy(15);
  const auto shares = policy.decide(std::vector{closed_loop(1, 0.010, 2, milliseconds(10)),
                                                closed_loop(2, 0.050, 5, milliseconds(10)),
                                                closed_loop(3, 0.090, 5, milliseconds(10))});
  EXPECT_EQ(shares[0].groups, 2U);
  EXPECT_EQ(shares[1].groups, 7U);
  EXPECT_EQ(shares[2].groups, 6U);
  EXPECT_EQ(shares[1].move, SloMove::kStarved);
  EXPECT_EQ(shares[2].move, SloMove::kStarved);
}

TEST(SloSizer, TenantsWithoutTargetShareTheRestByWeightAndNeverGetNothing) {
  SloSizer policy(15);
  std::vector<SloTenant> tenants{closed_loop(1, 0.010, 6, milliseconds(10)), {}, {}};
  tenants[1].id = 2;
  tenants[1].weight = 300;
  tenants[2].id = 3;
  tenants[2].weight = 100;
  auto shares = policy.decide(tenants);
  EXPECT_EQ(shares[0].groups, 6U);
  EXPECT_EQ(shares[1].groups, 7U);
  EXPECT_EQ(shares[2].groups, 2U);
  tenants[0] = closed_loop(1, 1.0, 6, milliseconds(10));
  shares = policy.decide(tenants);
  EXPECT_EQ(shares[0].groups, 14U);
  EXPECT_EQ(shares[1].groups, 1U);
  EXPECT_EQ(shares[2].groups, 1U);
  EXPECT_EQ(shares[1].set, shares[2].set);
}

TEST(SloSizer, ARoundThatSaysNothingChangesNothing) {
  SloSizer policy(15);
  SloTenant tenant = closed_loop(1, 0.020, 4, milliseconds(10));
  const uint32_t before = policy.decide(std::vector{tenant})[0].groups;
  tenant.groups = before;
  tenant.iterations = 1;
  tenant.latency = tenant.service = 5;
  EXPECT_EQ(policy.decide(std::vector{tenant})[0].groups, before);
}

TEST(SloSizer, SettlesInFewerRoundsThanThePublishedRulesAndDoesNotOvershoot) {
  int ours_in_all = 0, published_in_all = 0;
  for (const LoadStep& step : load_steps()) {
    const StepResult ours = run_ours(step);
    const StepResult divides = run_published(step, true);
    EXPECT_GE(ours.rounds, 1) << step.name;
    EXPECT_LE(ours.rounds, 5) << step.name;
    EXPECT_LE(ours.most_above, 2) << step.name;
    EXPECT_LE(ours.missed_rounds, 1) << step.name;
    if (divides.rounds > 0) {
      EXPECT_LE(ours.rounds, divides.rounds) << step.name;
    }
    ours_in_all += ours.rounds;
    published_in_all += divides.rounds > 0 ? divides.rounds : kRounds;
  }
  EXPECT_LE(3 * ours_in_all, published_in_all);
}

TEST(SloSizer, StaysPutUnderNoise) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    SloSizer policy(15);
    uint32_t groups = 15;
    int moves = 0;
    for (int round = 0; round < 60; ++round) {
      const double noise = 1 + (static_cast<double>(random() % 1001) - 500) / 500 * 0.03;
      const uint32_t next =
          policy
              .decide(std::vector{closed_loop(1, 0.030 / groups * noise, groups, milliseconds(5))})
              .front()
              .groups;
      moves += round > 5 && next != groups;
      groups = next;
    }
    EXPECT_LE(moves, 2) << seed;
    EXPECT_GE(groups, 6U);
    EXPECT_LE(groups, 7U);
  }
}

TEST(SloSizer, SharesNeverExceedTheGpuAndEverybodyWhoFitsHasOne) {
  std::mt19937_64 random(11);
  for (int life = 0; life < 300; ++life) {
    const auto groups = 1 + static_cast<uint32_t>(random() % 20);
    SloSizer policy(groups);
    std::vector<SloTenant> tenants(random() % 12);
    for (int round = 0; round < 20; ++round) {
      for (size_t i = 0; i < tenants.size(); ++i) {
        SloTenant& tenant = tenants[i];
        tenant.id = static_cast<uint32_t>(i);
        tenant.slo = Nanos(random() % 3 == 0 ? 0 : 1'000'000 * (1 + random() % 50));
        tenant.groups = static_cast<uint32_t>(random() % (groups + 1));
        tenant.iterations = static_cast<uint32_t>(random() % 50);
        tenant.latency = 1e-3 * static_cast<double>(random() % 200);
        tenant.service = random() % 2 == 0 ? -1 : tenant.latency / 2;
        tenant.arrivals = random() % 2 == 0 ? -1 : static_cast<double>(random() % 100);
        tenant.throughput = static_cast<double>(random() % 100);
        if (random() % 3 == 0) tenant.knee = 1 + static_cast<uint32_t>(random() % groups);
      }
      const auto shares = policy.decide(tenants);
      ASSERT_EQ(shares.size(), tenants.size());
      ASSERT_LE(sum_of(shares), groups);
      std::set<uint32_t> sets, none;
      for (const SloShare& share : shares) {
        sets.insert(share.set);
        if (share.groups == 0) none.insert(share.set);
      }
      // Of a GPU of one group those without a target get none, when others have one.
      ASSERT_TRUE(none.empty() || groups == 1);
      ASSERT_LE(sets.size(), std::max(groups, 2U));
    }
  }
}

}  // namespace
}  // namespace gpushare
