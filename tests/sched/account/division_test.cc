// SPDX-License-Identifier: Apache-2.0
#include "sched/account/division.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace gpushare {
namespace {

using namespace std::chrono_literals;

std::vector<Nanos> divided(Nanos busy, std::vector<Claim> claims) {
  divide(busy, claims);
  std::vector<Nanos> used;
  for (const Claim& claim : claims) used.push_back(claim.used);
  return used;
}

TEST(Division, WhoIsListedWorked) {
  EXPECT_EQ(divided(50ms, {{.alone = 150ms, .listed = 50ms}, {.alone = 50ms}}),
            (std::vector<Nanos>{50ms, 0ms}));
}

// An idle neighbour, and one that has died since.
TEST(Division, OfWhoIsNotListedItIsAsWasPresumed) {
  EXPECT_EQ(divided(50ms, {{.alone = 150ms}, {.alone = 50ms, .presumed = 50ms}}),
            (std::vector<Nanos>{0ms, 50ms}));
  EXPECT_EQ(divided(50ms, {{.alone = 150ms, .presumed = 150ms, .listed = 0ms},
                           {.alone = 60ms, .presumed = 60ms}}),
            (std::vector<Nanos>{0ms, 50ms}));
  EXPECT_EQ(divided(90ms, {{.alone = 100ms, .presumed = 20ms}, {.alone = 60ms, .presumed = 40ms}}),
            (std::vector<Nanos>{44ms, 46ms}))
      << "what is left in proportion to the rest";
}

TEST(Division, ListedBeyondTheTimeAloneIsSomebodyElsesWork) {
  EXPECT_EQ(divided(200ms, {{.alone = 20ms, .listed = 200ms}, {.alone = 100ms}}),
            (std::vector<Nanos>{20ms, 100ms}));
  EXPECT_EQ(divided(-5ms, {{.alone = 20ms, .listed = 20ms}}), (std::vector<Nanos>{0ms}));
}

TEST(Division, GivesAllThatThereIsAndNobodyMoreThanItWasThereFor) {
  std::minstd_rand random(11);
  for (int run = 0; run < 1000; ++run) {
    std::vector<Claim> claims(random() % 6);
    Nanos all{};
    for (Claim& claim : claims) {
      claim.alone = Nanos(random() % 100'000'000);
      claim.presumed = Nanos(random() % (claim.alone.count() + 1));
      if (random() % 2 == 0) claim.listed = Nanos(random() % 200'000'000);
      all += claim.alone;
    }
    const Nanos busy(random() % 300'000'000);
    divide(busy, claims);
    Nanos used{};
    for (const Claim& claim : claims) {
      EXPECT_GE(claim.used, Nanos{});
      EXPECT_LE(claim.used, claim.alone + 3ns);
      used += claim.used;
    }
    EXPECT_NEAR(used.count(), std::min(busy, all).count(), 20);
  }
}

}  // namespace
}  // namespace gpushare
