// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/sm_neighbours.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "sched/spatial/sm_partition.h"

namespace gpushare {
namespace {

using Sets = SmNeighbours::Sets;

constexpr SmGeometry kEight{.groups = 8, .sms_per_group = 8, .sms = 64};

class SmNeighboursTest : public ::testing::Test {
 protected:
  SmNeighbours neighbours_{kEight};
};

TEST_F(SmNeighboursTest, AreOneLessAndOneMore) {
  neighbours_.update({{1, 0b00000111}});
  EXPECT_EQ(neighbours_.of(1), (Sets{0b00000011, 0b00001111}));
  EXPECT_EQ(neighbours_.of(2), Sets{});
}

TEST_F(SmNeighboursTest, WhatCameLastGoesFirst) {
  neighbours_.update({{1, 0b00110000}});
  neighbours_.update({{1, 0b00110001}});
  EXPECT_EQ(neighbours_.of(1)[0], 0b00110000u);
}

TEST_F(SmNeighboursTest, OneGroupStays) {
  neighbours_.update({{1, 0b00000001}});
  EXPECT_EQ(neighbours_.of(1), (Sets{0b00000011}));
}

TEST_F(SmNeighboursTest, WhereNoneIsFreeEachOfTheOthersMayGiveOne) {
  neighbours_.update({{1, 0b00000011}, {2, 0b00001100}, {3, 0b11100000}, {4, 0b00010000}});
  EXPECT_EQ(neighbours_.of(1), (Sets{0b00000001, 0b00001011, 0b10000011}))
      << "not the one that has no more than one";
}

TEST_F(SmNeighboursTest, ThoseInOneSetGiveEachOtherNothing) {
  neighbours_.update({{1, 0b00001111}, {2, 0b00001111}, {3, 0b11110000}});
  EXPECT_EQ(neighbours_.of(1), (Sets{0b00000111, 0b10001111}));
  EXPECT_EQ(neighbours_.of(2), neighbours_.of(1));
}

TEST_F(SmNeighboursTest, WhoHasEndedHasNothing) {
  neighbours_.update({{1, 0b00001111}, {2, 0b11110000}});
  neighbours_.update({{1, 0b00001111}});
  EXPECT_EQ(neighbours_.of(1), (Sets{0b00000111, 0b00011111}));
  EXPECT_EQ(neighbours_.of(2), Sets{});
}

// Two tenants that give each other groups, one at a time: what comes was always announced.
void expect_announced(const SmGeometry& geometry) {
  SmNeighbours neighbours(geometry);
  SmPartition partition(geometry);
  std::mt19937 random(3);
  uint32_t first = 4;
  std::map<uint32_t, SmGroups> sets;
  for (int round = 0; round < 200; ++round) {
    const std::vector<PlannedHolder> planned{{.holder = 1, .groups = first},
                                             {.holder = 2, .groups = 8 - first}};
    partition.plan(planned);
    for (int turn = 0; turn < 3; ++turn)
      for (const Assignment& assignment : partition.take_assignments())
        partition.confirm(assignment.to, assignment.groups);
    ASSERT_TRUE(partition.is_settled());
    for (const uint32_t holder : {1u, 2u}) {
      const SmGroups set = partition.assigned(holder);
      if (round > 0 && set != sets[holder]) {
        const Sets announced = neighbours.of(holder);
        EXPECT_NE(std::ranges::find(announced, set), announced.end()) << round;
      }
    }
    for (const uint32_t holder : {1u, 2u}) sets[holder] = partition.assigned(holder);
    neighbours.update(sets);
    if (first == 1 || (first < 7 && random() % 2 == 0)) {
      ++first;
    } else {
      --first;
    }
  }
}
TEST(SmNeighbours, AreWhatThePartitionChooses) { expect_announced(kEight); }
TEST(SmNeighbours, AreWhatThePartitionChoosesWithALargerLastGroup) {
  expect_announced({.groups = 8, .sms_per_group = 8, .sms = 70});
}

}  // namespace
}  // namespace gpushare
