// SPDX-License-Identifier: Apache-2.0
// Services that share sets of SMs, through the policy.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/sched/support/slo_services.h"

namespace gpushare {
namespace {

TEST(SloPolicyPacks, FourteenFunctionsMeetTheirTargetsWhereASetEachWouldMissThem) {
  Services services(functions(14));
  SloSizer policy(15);
  int missed_alone = 0;
  for (uint32_t i = 0; i < 14; ++i) missed_alone += !services.is_met(i);
  EXPECT_EQ(missed_alone, 14);
  for (int round = 0; round < 12; ++round) services.round(policy);
  services.take_changes();
  for (int round = 0; round < 50; ++round) {
    services.round(policy);
    for (uint32_t i = 0; i < 14; ++i)
      EXPECT_TRUE(services.is_met(i)) << "function " << i << " round " << round;
  }
  EXPECT_EQ(services.take_changes(), 0) << "calm loads move nobody";
}

// Two heavy services and twelve light ones, as measured on an H200
// (bench/gpu/spatial/functions.py): seconds on all SMs, requests a second, and how much longer it
// takes on 8 SMs.
TEST(SloPolicyPacks, ShortRequestsDoNotWaitForLongOnes) {
  struct Function {
    double seconds, rate, on_eight;
  };
  const std::vector<Function> measured{{.0028, 54, 15},    {.0026, 57, 15},    {.00038, 66, 3.2},
                                       {.00026, 95, 3.4},  {.00039, 65, 3.1},  {.00022, 116, 4},
                                       {.00057, 44, 2.4},  {.00042, 60, 3.7},  {.0006, 42, 4.6},
                                       {.00033, 75, 6.2},  {.0020, 12.5, 1.9}, {.0013, 18.6, 2.1},
                                       {.0020, 12.2, 2.1}, {.0012, 21.5, 2.8}};
  std::vector<WorldTenant> all;
  for (const Function& one : measured)
    all.push_back({.shape = {LatencyShape::Kind::kAmdahl, 1 - (one.on_eight - 1) / 14},
                   .full_speed = one.seconds,
                   .slo = one.seconds * (all.size() < 2 ? 4 : 3),
                   .arrivals = one.rate});
  Services services(all);
  SloSizer policy(15);
  for (int round = 0; round < 12; ++round) services.round(policy);
  services.take_changes();
  for (int round = 0; round < 20; ++round) {
    services.round(policy);
    for (uint32_t i = 0; i < all.size(); ++i)
      EXPECT_TRUE(services.is_met(i)) << "function " << i << " round " << round;
  }
  EXPECT_EQ(services.take_changes(), 0);
  for (uint32_t i = 2; i < 10; ++i)
    for (uint32_t heavy = 0; heavy < 2; ++heavy) EXPECT_NE(services.set(i), services.set(heavy));
}

// Targets that no division meets: those that share are as many as they like, the two heavy ones
// still get what keeps their queues short.
TEST(SloPolicyPacks, WhereTargetsAreMissedNoQueueGrowsForEver) {
  std::vector<WorldTenant> all;
  for (const double rate : {60.0, 60.0})
    all.push_back({.shape = {}, .full_speed = 0.0028, .slo = 0.011, .arrivals = rate});
  for (int i = 0; i < 12; ++i)
    all.push_back({.shape = {}, .full_speed = 0.0006, .slo = 0.0007 + 0.0001 * i, .arrivals = 30});
  Services services(all);
  SloSizer policy(15);
  for (int round = 0; round < 30; ++round) services.round(policy);
  int missed = 0;
  for (uint32_t i = 0; i < all.size(); ++i) {
    missed += !services.is_met(i);
    EXPECT_LT(services.response(i), 0.1) << i;
  }
  EXPECT_GT(missed, 0);
}

// Whatever it got: its requests are more than the whole GPU can answer.
TEST(SloPolicyPacks, WhoCannotBeServedTakesNothingFromThoseWhoCan) {
  std::vector<WorldTenant> all{{.shape = {}, .full_speed = 0.010, .slo = 0.05, .arrivals = 200}};
  for (int i = 0; i < 3; ++i)
    all.push_back({.shape = {}, .full_speed = 0.001, .slo = 0.006, .arrivals = 15});
  Services services(all);
  SloSizer policy(15);
  for (int round = 0; round < 20; ++round) services.round(policy);
  for (uint32_t i = 1; i < 4; ++i) EXPECT_TRUE(services.is_met(i)) << i;
}

TEST(SloPolicyPacks, WhoIsNotMeasuredYetGetsItsPartByHeads) {
  std::vector<WorldTenant> all;
  for (int i = 0; i < 5; ++i)
    all.push_back({.shape = {}, .full_speed = 0.005, .slo = 0.012, .arrivals = 10});
  Services services(all);
  services.leave_unmeasured(4, 4);
  SloSizer policy(15);
  for (int round = 0; round < 12; ++round) services.round(policy);
  for (uint32_t i = 0; i < 4; ++i) services.tenants()[i].arrivals = 25;  // alone these need 14
  for (int round = 0; round < 12; ++round) services.round(policy);
  for (uint32_t i = 1; i < 4; ++i) EXPECT_EQ(services.set(i), services.set(0));
  EXPECT_GE(services.tenants()[4].groups, 3);
}

TEST(SloPolicyPacks, WhoMayHaveLessGivesUpTheRest) {
  for (const bool is_much_less : {false, true}) {
    Services services(functions(8));
    SloSizer policy(15);
    for (int round = 0; round < 12; ++round) services.round(policy);
    uint32_t widest = 0;
    for (uint32_t i = 1; i < 8; ++i)
      if (services.tenants()[i].groups > services.tenants()[widest].groups) widest = i;
    const auto had = static_cast<uint32_t>(services.tenants()[widest].groups);
    ASSERT_GT(had, 2U);
    const uint32_t most = is_much_less ? 2 : had - 1;
    services.set_most(widest, most);
    for (int round = 0; round < 12; ++round) services.round(policy);
    EXPECT_LE(services.tenants()[widest].groups, most);
  }
}

TEST(SloPolicyPacks, TheyFollowALoadThatTriplesAndFallsBack) {
  Services services(functions(14));
  SloSizer policy(15);
  for (int round = 0; round < 12; ++round) services.round(policy);
  for (const double factor : {3.0, 1 / 3.0}) {
    services.tenants()[4].arrivals *= factor;
    int missed = 0;
    for (int round = 0; round < 20; ++round) {
      services.round(policy);
      for (uint32_t i = 0; i < 14; ++i) missed += round > 4 && !services.is_met(i);
    }
    EXPECT_EQ(missed, 0) << factor;
  }
}

// Sixteen is what fits: of more, most are served all the same, and it does not come and go.
TEST(SloPolicyPacks, WhereNotAllFitMostAreServed) {
  for (const uint32_t count : {18U, 20U}) {
    Services services(functions(static_cast<int>(count)));
    SloSizer policy(15);
    for (int round = 0; round < 12; ++round) services.round(policy);
    services.take_changes();
    for (int round = 0; round < 20; ++round) services.round(policy);
    uint32_t met = 0;
    for (uint32_t i = 0; i < count; ++i) met += services.is_met(i);
    EXPECT_GE(met, count / 2);
    EXPECT_EQ(services.take_changes(), 0);
  }
}

TEST(SloPolicyPacks, WhenFewAreLeftEachHasItsOwnSetAgain) {
  std::vector<WorldTenant> all = functions(14);
  SloSizer policy(15);
  Services many(all);
  for (int round = 0; round < 12; ++round) many.round(policy);
  all.resize(2);
  Services few(all);
  for (int round = 0; round < 10; ++round) few.round(policy);
  EXPECT_NE(few.set(0), few.set(1));
  EXPECT_TRUE(few.is_met(0) && few.is_met(1));
}

TEST(SloPolicyPacks, ALoopWithATargetSharesWithNobody) {
  SloSizer policy(15);
  std::vector<SloTenant> views(3);
  for (uint32_t i = 0; i < 3; ++i) {
    SloTenant& view = views[i];
    view.id = i;
    view.slo = std::chrono::milliseconds(10);
    view.groups = 5;
    view.iterations = 100;
    view.service = view.latency = 0.018;
    view.throughput = i == 0 ? 1 / view.service : 5;
    if (i > 0) view.arrivals = 5;
  }
  for (int round = 0; round < 5; ++round) {
    const auto shares = policy.decide(views);
    EXPECT_NE(shares[0].set, shares[1].set);
    EXPECT_NE(shares[0].set, shares[2].set);
    EXPECT_EQ(shares[1].set, shares[2].set);
  }
}

// Loops, too, of which none can share: before and after they are measured.
TEST(SloPolicyPacks, MoreTenantsThanGroupsHaveAPlaceEach) {
  SloSizer policy(15);
  std::vector<SloTenant> views(40);
  for (uint32_t i = 0; i < 40; ++i) {
    views[i].id = i;
    if (i % 2 == 0) views[i].slo = std::chrono::milliseconds(10);
  }
  for (int round = 0; round < 5; ++round) {
    const auto shares = policy.decide(views);
    for (uint32_t i = 0; i < 40; ++i) {
      EXPECT_GE(shares[i].groups, 1U) << i;
      views[i].groups = shares[i].groups;
      views[i].iterations = 100;
      views[i].latency = views[i].service = 0.02;
      views[i].throughput = 50;
    }
  }
}

// Who only asks for a target itself, among many that share: it changes nothing for them.
TEST(SloPolicyPacks, OneThatMayNotShareTakesNothingFromThoseThatDo) {
  std::vector<WorldTenant> all = functions(15);
  all.push_back(
      {.shape = {LatencyShape::Kind::kLinear}, .full_speed = 0.0001, .slo = 0.1, .arrivals = 1});
  Services services(all);
  services.forbid_sharing(15);
  SloSizer policy(15);
  for (int round = 0; round < 20; ++round) services.round(policy);
  for (uint32_t i = 0; i < 16; ++i) EXPECT_TRUE(services.is_met(i)) << i;
}

// Measured with an error of up to 10 %: who shares with whom hardly changes, also past capacity.
TEST(SloPolicyPacks, NoiseMovesFew) {
  for (const uint32_t count : {14U, 20U}) {
    Services services(functions(static_cast<int>(count)));
    services.set_noise(0.10);
    SloSizer policy(15);
    for (int round = 0; round < 12; ++round) services.round(policy);
    services.take_moves();
    for (int round = 0; round < 100; ++round) services.round(policy);
    EXPECT_LE(services.take_moves(), static_cast<int>(count)) << count;
  }
}

TEST(SloPolicyPacks, NoiseMovesFewAlsoWhereNotAllFit) {
  std::mt19937 random(1);
  const auto between = [&](double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(random);
  };
  int moves = 0, changes = 0, tenant_rounds = 0;
  for (int world = 0; world < 60; ++world) {
    std::vector<WorldTenant> all;
    for (int i = 3 + static_cast<int>(random() % 14); i > 0; --i) {
      const double full_speed = between(0.0005, 0.01);
      all.push_back({.shape = {LatencyShape::Kind::kAmdahl, between(0, 0.8)},
                     .full_speed = full_speed,
                     .slo = full_speed * between(1.5, 8),
                     .arrivals = between(0.005, 0.15) / full_speed});
    }
    Services services(all);
    services.set_noise(0.10);
    SloSizer policy(15);
    for (int round = 0; round < 30; ++round) services.round(policy);
    services.take_moves();
    services.take_changes();
    for (int round = 0; round < 30; ++round) services.round(policy);
    moves += services.take_moves();
    changes += services.take_changes();
    tenant_rounds += 30 * static_cast<int>(all.size());
  }
  EXPECT_LE(moves, tenant_rounds / 200);
  EXPECT_LE(changes, tenant_rounds / 40);
}

// Three services whose requests are a few large kernels, and three of many small ones, as long.
TEST(SloPolicyPacks, ServicesOfManySmallKernelsDoNotShareWithThoseOfLargeOnes) {
  for (const bool is_known : {true, false}) {
    SloSizer policy(15);
    std::vector<SloTenant> views(6);
    for (uint32_t i = 0; i < 6; ++i) {
      SloTenant& view = views[i];
      view.id = i;
      view.slo = std::chrono::milliseconds(i < 3 ? 20 : 30);
      view.groups = i < 3 ? 3 : 2;
      view.iterations = 100;
      view.service = view.latency = i < 3 ? 0.025 : 0.010;
      view.arrivals = view.throughput = 10;
      if (is_known) view.launches = i < 3 ? 5 : 500;
    }
    const auto shares = policy.decide(views);
    EXPECT_EQ(shares[0].set, shares[1].set);
    bool is_mixed = false;
    for (uint32_t i = 3; i < 6; ++i) is_mixed = is_mixed || shares[i].set == shares[0].set;
    EXPECT_EQ(is_mixed, !is_known);
  }
}

// Nothing ended on the same groups since the last decision, but ten times as many arrived.
TEST(SloPolicyPacks, ARateIsFollowedBeforeItIsMeasured) {
  SloSizer policy(15);
  SloTenant view;
  view.slo = std::chrono::milliseconds(20);
  view.groups = 4;
  view.iterations = 100;
  view.service = view.latency = 0.015;
  view.arrivals = view.throughput = 5;
  const auto before = policy.decide(std::span(&view, 1))[0];
  view.iterations = 0;
  view.latency = view.service = view.throughput = -1;
  view.arrivals = 60;
  const auto after = policy.decide(std::span(&view, 1))[0];
  EXPECT_GT(after.groups, before.groups);
}

TEST(SloPolicyPacks, WhoseTargetIsGivenUpIsSaidToStarve) {
  std::vector<WorldTenant> all = functions(20);
  all[7].slo = all[7].full_speed * 1.02;  // hardly met on all groups
  Services services(all);
  SloSizer policy(15);
  for (int round = 0; round < 12; ++round) services.round(policy);
  std::vector<SloTenant> views(20);
  for (uint32_t i = 0; i < 20; ++i) {
    views[i].id = i;
    views[i].slo = Nanos(static_cast<int64_t>(all[i].slo * 1e9));
    views[i].groups = static_cast<uint32_t>(services.tenants()[i].groups);
  }
  const SloShare share = policy.decide(views)[7];
  EXPECT_EQ(share.move, SloMove::kStarved);
  EXPECT_GT(share.demand, share.groups);
}

TEST(SloPolicyPacks, ThoseWithoutATargetShareASetBeforeServicesDo) {
  SloSizer policy(15);
  std::vector<SloTenant> views(11);
  for (uint32_t i = 0; i < 11; ++i) views[i].id = i;
  for (uint32_t i = 0; i < 2; ++i) {
    SloTenant& view = views[i];
    view.slo = std::chrono::milliseconds(10);
    view.groups = 4;
    view.iterations = 100;
    view.service = view.latency = 0.0097;
    view.arrivals = view.throughput = 1;
  }
  const auto shares = policy.decide(views);
  EXPECT_NE(shares[0].set, shares[1].set);
  EXPECT_EQ(shares[0].groups, 4U);
  for (uint32_t i = 3; i < 11; ++i) EXPECT_EQ(shares[i].set, shares[2].set);
  EXPECT_EQ(shares[2].groups, 7U);
}

}  // namespace
}  // namespace gpushare
