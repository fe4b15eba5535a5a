// SPDX-License-Identifier: Apache-2.0
#include "sched/account/division.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace gpushare {
namespace {

using namespace std::chrono_literals;

std::vector<Nanos> divided(Nanos busy, std::vector<Claim> claims) {
  divide(busy, 200ms, claims);
  std::vector<Nanos> used;
  for (const Claim& claim : claims) used.push_back(claim.used);
  return used;
}

TEST(Division, WhoWasSeenToWorkDidIt) {
  EXPECT_EQ(divided(50ms, {{.alone = 100ms, .seen = 50ms}, {.alone = 50ms, .expected = 50ms}}),
            (std::vector<Nanos>{50ms, 0ms}));
}

// Whatever is expected: the other one was not there for long enough.
TEST(Division, WhoWasThereForSoLongDidIt) {
  EXPECT_EQ(divided(95ms, {{.alone = 90ms}, {.alone = 10ms, .expected = 10ms}}),
            (std::vector<Nanos>{90ms, 10ms}))
      << "they worked all the time, but for noise";
  EXPECT_EQ(divided(80ms, {{.alone = 90ms}, {.alone = 10ms, .expected = 10ms}}),
            (std::vector<Nanos>{70ms, 10ms}));
}

// Of the turns beside others a part is the hardware's, in which no kernel runs.
TEST(Division, WhatSwitchesTakeIsNobodysRest) {
  EXPECT_EQ(divided(186ms, {{.shared = 95ms}, {.shared = 95ms}, {.alone = 8ms, .expected = 8ms}}),
            (std::vector<Nanos>{0ms, 0ms, 8ms}));
}

TEST(Division, WhoIsHardlyThereMayHaveRested) {
  EXPECT_EQ(divided(0ms, {{.alone = 5ms, .expected = 5ms}}), (std::vector<Nanos>{0ms}));
}

// An idle neighbour, and one that has died since.
TEST(Division, OtherwiseItIsAsWasExpected) {
  EXPECT_EQ(divided(50ms, {{.alone = 150ms}, {.alone = 50ms, .expected = 50ms}}),
            (std::vector<Nanos>{0ms, 50ms}));
  EXPECT_EQ(divided(90ms, {{.alone = 100ms, .expected = 20ms}, {.alone = 60ms, .expected = 40ms}}),
            (std::vector<Nanos>{Nanos(44117647), Nanos(45882353)}))
      << "25 ms the first one did for certain, and what is left in proportion to the rest";
}

TEST(Division, BeyondTheTimeAloneItIsSomebodyElsesWork) {
  EXPECT_EQ(divided(200ms, {{.alone = 20ms, .seen = 20ms}, {.alone = 100ms}}),
            (std::vector<Nanos>{20ms, 100ms}));
  EXPECT_EQ(divided(-5ms, {{.alone = 20ms, .seen = 20ms}}), (std::vector<Nanos>{0ms}));
}

// 90 ms of a turn, then another one holds the GPU for the rest.
TEST(Division, WhatItDidAtMostIsWhatOthersWereNotSeenToDo) {
  const auto most = [](Nanos seen_of_first) {
    std::vector<Claim> claims{{.shared = 90ms, .seen = seen_of_first}, {.alone = 110ms}};
    divide(90ms, 200ms, claims);
    EXPECT_EQ(claims[1].used, 0ms);
    EXPECT_EQ(claims[0].least, 0ms) << "the other one may have done it";
    EXPECT_EQ(claims[0].most, 90ms);
    return claims[1].most;
  };
  EXPECT_EQ(most(0ms), 90ms) << "the first one may have rested";
  EXPECT_EQ(most(90ms), 0ms);
  EXPECT_EQ(most(45ms), 45ms);
}

TEST(Division, WhatItDidAtLeastIsWhatOthersHadNoTimeFor) {
  std::vector<Claim> claims{{.shared = 90ms}, {.alone = 10ms}, {}};
  divide(98ms, 200ms, claims);
  EXPECT_EQ(claims[0].least, 88ms);
  EXPECT_EQ(claims[1].least, 8ms);
  EXPECT_EQ(claims[2].most, 0ms);
}

TEST(Division, GivesAllThatThereIsAndNobodyMoreThanItWasThereFor) {
  std::minstd_rand random(11);
  for (int run = 0; run < 1000; ++run) {
    std::vector<Claim> claims(random() % 6);
    Nanos all{};
    for (Claim& claim : claims) {
      claim.alone = Nanos(random() % 100'000'000);
      claim.expected = Nanos(random() % (claim.alone.count() + 1));
      if (random() % 2 == 0) claim.seen = Nanos(random() % (claim.alone.count() + 1));
      all += claim.alone;
    }
    const Nanos busy(random() % 300'000'000);
    divide(busy, 200ms, claims);
    Nanos used{};
    for (const Claim& claim : claims) {
      EXPECT_GE(claim.used, Nanos{});
      EXPECT_LE(claim.used, claim.alone + 3ns);
      EXPECT_LE(claim.least, claim.most);
      EXPECT_LE(claim.most, claim.held());
      used += claim.used;
    }
    const Nanos due = busy + std::min<Nanos>(5ms, all / 10) >= all ? all : busy;
    EXPECT_NEAR(used.count(), due.count(), 20);
  }
}

}  // namespace
}  // namespace gpushare
