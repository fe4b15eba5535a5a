// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/sm_partition.h"

#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <numeric>
#include <random>

#include "sched/spatial/group_division.h"

namespace gpushare {
namespace {

using Planned = std::vector<PlannedHolder>;

constexpr SmGeometry kFifteen{.groups = 15, .sms = 120};

// Everybody answers at once.
void settle(SmPartition& partition) {
  for (int round = 0; round < 10; ++round)
    for (const Assignment& assignment : partition.take_assignments())
      partition.confirm(assignment.to, assignment.groups);
}

int count(SmGroups groups) { return std::popcount(groups); }

TEST(Partition, PercentagesRoundToTheNearestGroupAndAtLeastOne) {
  const SmGeometry h200;
  struct Row {
    uint32_t percent, groups;
  };
  for (const Row& row : {Row{1, 1}, Row{6, 1}, Row{9, 1}, Row{10, 2}, Row{25, 4}, Row{50, 8},
                         Row{75, 12}, Row{90, 15}, Row{100, 16}})
    EXPECT_EQ(groups_of_percent(row.percent, h200), row.groups) << row.percent << " %";
}

TEST(Partition, TheLastGroupHasWhatTheOthersLeave) {
  const SmGeometry h200 = geometry_of(132);
  EXPECT_EQ(h200.groups, 16u);
  EXPECT_TRUE(h200.is_last_larger());
  EXPECT_EQ(h200.sms_of(0xFFFF), 132u);
  EXPECT_EQ(h200.sms_of(0x7FFF), 120u);
  EXPECT_EQ(h200.sms_of(0x8000), 12u);
  EXPECT_EQ(h200.sms_of_count(16), 132u);
  EXPECT_EQ(h200.sms_of_count(15), 120u);
  const SmGeometry even = geometry_of(128);
  EXPECT_FALSE(even.is_last_larger());
  EXPECT_EQ(even.sms_of(0x8000), 8u);
  EXPECT_EQ(geometry_of(4).groups, 1u);
  EXPECT_EQ(geometry_of(4).sms_of(1), 4u) << "fewer than a group has";
}

TEST(Partition, TheLargerGroupGoesToWhoShallHaveMostAndIsNotKeptAlone) {
  const SmGeometry h200;
  SmPartition partition(h200);
  partition.plan(
      Planned{{.holder = 1, .groups = 4}, {.holder = 2, .groups = 8}, {.holder = 3, .groups = 4}});
  settle(partition);
  EXPECT_EQ(partition.in_use(2) & h200.last(), h200.last());
  EXPECT_EQ(h200.sms_of(partition.in_use(1)) + h200.sms_of(partition.in_use(2)) +
                h200.sms_of(partition.in_use(3)),
            132u);
  partition.plan(
      Planned{{.holder = 1, .groups = 14}, {.holder = 2, .groups = 1}, {.holder = 3, .groups = 1}});
  settle(partition);
  EXPECT_EQ(count(partition.in_use(2)), 1);
  EXPECT_NE(partition.in_use(2), h200.last());
  EXPECT_EQ(partition.in_use(1) & h200.last(), h200.last());
}

// 40 and 60 % were 60 and 72 SMs on an H100, where 53 and 79 are due.
TEST(Partition, WhoHadAllGivesTheLargerGroupToWhoIsToHaveMore) {
  const SmGeometry h200;
  SmPartition partition(h200);
  partition.plan(Planned{{.holder = 1, .groups = 7}});
  settle(partition);
  EXPECT_EQ(count(partition.in_use(1)), 16);
  partition.plan(Planned{{.holder = 1, .groups = 7}, {.holder = 2, .groups = 10}});
  settle(partition);
  EXPECT_EQ(h200.sms_of(partition.in_use(1)), 56u);
  EXPECT_EQ(h200.sms_of(partition.in_use(2)), 76u);
}

TEST(Partition, WhoComesLastIsNotGivenTheLargerGroupAlone) {
  const SmGeometry h200;
  SmPartition partition(h200);
  Planned planned{{.holder = 2, .groups = 6}};
  const auto come = [&] {
    partition.plan(planned);
    settle(partition);
  };
  come();
  planned.insert(planned.begin(), {.holder = 1, .groups = 6});
  come();
  ASSERT_EQ(partition.in_use(2) & h200.last(), h200.last());
  planned.push_back({.holder = 3, .groups = 1});
  come();
  EXPECT_EQ(count(partition.in_use(3)), 1);
  EXPECT_NE(partition.in_use(3), h200.last());
}

TEST(Partition, TheLargerGroupIsAPartitionOfItsOwnOnlyWhereNoOtherIsFree) {
  const SmGeometry h200;
  SmPartition partition(h200);
  Planned idle{{.holder = 1, .groups = 7, .is_idle = true},
               {.holder = 2, .groups = 9, .is_idle = true}};
  const auto settled = [&](uint32_t holder) {
    partition.plan(idle);
    settle(partition);
    return partition.in_use(holder);
  };
  EXPECT_NE(settled(1), h200.last());
  EXPECT_NE(settled(2), h200.last());
  idle[1].is_idle = false;
  EXPECT_EQ(settled(2) & h200.last(), h200.last());
  idle[1].is_idle = true;
  EXPECT_NE(settled(2), h200.last()) << "what it keeps while it lends";
  Planned many;
  for (uint32_t holder = 10; holder < 26; ++holder) many.push_back({.holder = holder});
  partition.plan(many);
  settle(partition);
  SmGroups used = 0;
  for (const PlannedHolder& one : many) used |= partition.in_use(one.holder);
  EXPECT_EQ(used, SmGroups{0xffff}) << "it is used all the same";
}

TEST(Partition, DividesInProportionWithoutRest) {
  EXPECT_EQ(divide_in_proportion(15, std::vector<uint32_t>{10, 10, 10}, 1),
            (std::vector<uint32_t>{5, 5, 5}));
  EXPECT_EQ(divide_in_proportion(15, std::vector<uint32_t>{100, 1, 1}, 1),
            (std::vector<uint32_t>{13, 1, 1}));
  EXPECT_EQ(divide_in_proportion(2, std::vector<uint32_t>{5, 5, 5}, 1),
            (std::vector<uint32_t>{1, 1, 0}));
  const std::vector<GroupDemand> demands{{2}, {9}, {6}};
  EXPECT_EQ(divide_max_min(10, demands), (std::vector<uint32_t>{2, 4, 4}));
  EXPECT_EQ(divide_max_min(20, demands), (std::vector<uint32_t>{2, 9, 6}));
  EXPECT_EQ(divide_max_min(15, std::vector<GroupDemand>{{20, 9}, {3}}),
            (std::vector<uint32_t>{14, 1}));
}

TEST(Partition, AGrowingHolderWaitsUntilTheShrinkingOneHasAnswered) {
  SmPartition partition(kFifteen);
  partition.plan(Planned{{.holder = 1, .groups = 10}, {.holder = 2, .groups = 5}});
  settle(partition);
  const SmGroups before = partition.in_use(2);

  partition.plan(Planned{{.holder = 1, .groups = 7}, {.holder = 2, .groups = 8}});
  const auto first = partition.take_assignments();
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].to, 1U);
  EXPECT_EQ(count(first[0].groups), 7);
  EXPECT_EQ(count(partition.in_use(1)), 10);
  EXPECT_TRUE(partition.take_assignments().empty());

  partition.confirm(1, first[0].groups);
  const auto second = partition.take_assignments();
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].to, 2U);
  EXPECT_EQ(count(second[0].groups), 8);
  EXPECT_EQ(second[0].groups & before, before);
  EXPECT_FALSE(partition.is_settled());
  partition.confirm(2, second[0].groups);
  EXPECT_TRUE(partition.is_settled());
}

TEST(Partition, AnAnswerToAnOlderOrderCountsForNothing) {
  SmPartition partition(kFifteen);
  partition.plan(Planned{{.holder = 1, .groups = 10, .can_borrow = false}});
  settle(partition);
  const SmGroups old = partition.in_use(1);
  partition.plan(Planned{{.holder = 1, .groups = 3, .can_borrow = false}});
  const auto assignments = partition.take_assignments();
  partition.confirm(1, old);
  partition.confirm(1, 0);
  partition.confirm(9, assignments[0].groups);
  EXPECT_EQ(partition.in_use(1), old);
  // Even when it shall have its old set again: the assignment on its way may still arrive.
  partition.plan(Planned{{.holder = 1, .groups = 10, .can_borrow = false}});
  EXPECT_TRUE(partition.take_assignments().empty());
}

TEST(Partition, IdleGroupsAreLentAndComeBackInOneRound) {
  SmPartition partition(kFifteen);
  Planned planned{{.holder = 1, .groups = 8}, {.holder = 2, .groups = 7}};
  partition.plan(planned);
  settle(partition);
  const SmGroups own = partition.in_use(1);

  planned[0].is_idle = true;
  const auto sizes = partition.plan(planned);
  EXPECT_EQ(sizes[0], (HolderSize{1, 8, 1}));
  EXPECT_EQ(sizes[1], (HolderSize{2, 7, 14}));
  settle(partition);
  EXPECT_EQ(count(partition.in_use(1)), 1);
  EXPECT_EQ(count(partition.in_use(2)), 14);

  planned[0].is_idle = false;
  partition.plan(planned);
  const auto back = partition.take_assignments();
  ASSERT_EQ(back.size(), 1U);
  EXPECT_EQ(back[0].to, 2U);
  partition.confirm(2, back[0].groups);
  settle(partition);
  EXPECT_EQ(partition.in_use(1), own);  // the borrower gives up what it got last
}

TEST(Partition, OneThatMayNotBorrowKeepsToItsShare) {
  SmPartition partition(kFifteen);
  const auto sizes = partition.plan(
      Planned{{.holder = 1, .groups = 4, .can_borrow = false}, {.holder = 2, .groups = 4}});
  EXPECT_EQ(sizes[0].target, 4U);
  EXPECT_EQ(sizes[1].target, 11U);
}

TEST(Partition, TooManyGroupsAreScaledDownAndTooManyHoldersLeaveTheNewOnesOut) {
  SmPartition partition({.groups = 4, .sms = 32});
  const auto sizes =
      partition.plan(Planned{{.holder = 1, .groups = 4}, {.holder = 2, .groups = 2}});
  EXPECT_EQ(sizes[0].entitled + sizes[1].entitled, 4U);
  settle(partition);
  Planned planned;
  for (uint32_t id = 9; id > 0; --id) planned.push_back({.holder = id, .groups = 2});
  uint32_t fit = 0;
  for (const HolderSize& size : partition.plan(planned)) {
    fit += size.target > 0;
    if (size.holder <= 2) {
      EXPECT_EQ(size.target, 1U);
    }
  }
  EXPECT_EQ(fit, 4U);
  settle(partition);
  EXPECT_TRUE(partition.is_settled());
}

TEST(Partition, ASilentHolderDoesNotStopTheOthers) {
  SmPartition partition(kFifteen);
  partition.plan(
      Planned{{.holder = 1, .groups = 5}, {.holder = 2, .groups = 5}, {.holder = 3, .groups = 5}});
  settle(partition);
  partition.plan(
      Planned{{.holder = 1, .groups = 1}, {.holder = 2, .groups = 4}, {.holder = 3, .groups = 10}});
  for (const Assignment& assignment : partition.take_assignments())
    if (assignment.to != 1) partition.confirm(assignment.to, assignment.groups);
  for (const Assignment& assignment : partition.take_assignments())
    partition.confirm(assignment.to, assignment.groups);
  EXPECT_EQ(count(partition.in_use(2)), 4);
  EXPECT_EQ(count(partition.in_use(3)), 6);
  EXPECT_EQ(count(partition.in_use(1)), 5);  // it may still use them
  partition.remove(1);
  partition.plan(Planned{{.holder = 2, .groups = 4}, {.holder = 3, .groups = 11}});
  settle(partition);
  EXPECT_EQ(count(partition.in_use(3)), 11);
}

TEST(Partition, NoneIsToldFewerGroupsThanItsLeast) {
  SmPartition partition(kFifteen);
  Planned planned{{.holder = 1, .groups = 9, .is_idle = true, .least = 7},
                  {.holder = 2, .groups = 15}};
  partition.plan(planned);
  settle(partition);
  EXPECT_EQ(count(partition.in_use(1)), 7) << "it lends what is more than that";
  planned[0] = {.holder = 1, .groups = 2, .least = 7};
  planned.push_back({.holder = 3, .groups = 2, .least = 4});
  partition.plan(planned);
  for (const Assignment& told : partition.take_assignments()) {
    EXPECT_EQ(told.to, 2U);
    EXPECT_EQ(count(told.groups), 4) << "it gives up what the two need";
    EXPECT_EQ(partition.assigned(3), 0U);
    partition.confirm(told.to, told.groups);
  }
  settle(partition);
  EXPECT_EQ(count(partition.in_use(1)), 7);
  EXPECT_EQ(count(partition.in_use(3)), 4);
}

TEST(Partition, WhoHasALeastWaitsUntilAsManyAreFreeAtOnce) {
  SmPartition partition(kFifteen);
  partition.plan(Planned{{.holder = 1, .groups = 7}, {.holder = 2, .groups = 8}});
  settle(partition);
  partition.plan(Planned{{.holder = 1, .groups = 4},
                         {.holder = 2, .groups = 5},
                         {.holder = 3, .groups = 6, .least = 6}});
  const auto told = partition.take_assignments();
  ASSERT_EQ(told.size(), 2U);
  partition.confirm(1, told[0].groups);
  EXPECT_TRUE(partition.take_assignments().empty()) << "three are free, and it needs six";
  partition.confirm(2, told[1].groups);
  const auto all = partition.take_assignments();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(count(all[0].groups), 6);
}

// --- properties ---------------------------------------------------------------------------------

// The other side: a process reads its assignment when it launches, uses it from then on, and the
// agent reads what it uses whenever it looks.
class Processes {
 public:
  explicit Processes(uint64_t seed) : random_(seed) {}

  void tell(const Assignment& assignment) { all_[assignment.to].wanted = assignment.groups; }
  void step(SmPartition& partition) {
    for (auto& [id, process] : all_) {
      if (process.is_silent) continue;
      if (one_in(3)) process.used = process.wanted;
      if (one_in(3)) partition.confirm(id, process.used);
    }
  }
  void finish(SmPartition& partition) {
    for (auto& [id, process] : all_) {
      process.is_silent = false;
      process.used = process.wanted;
      partition.confirm(id, process.used);
    }
  }
  void die(uint32_t id) { all_.erase(id); }
  void silence(uint32_t id) { all_[id].is_silent = true; }
  bool are_disjoint() const {
    SmGroups seen = 0;
    for (const auto& [id, process] : all_) {
      if ((seen & process.used) != 0) return false;
      seen |= process.used;
    }
    return true;
  }
  bool one_in(uint32_t n) { return random_() % n == 0; }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

 private:
  struct Process {
    SmGroups wanted = 0, used = 0;
    bool is_silent = false;
  };
  std::mt19937_64 random_;
  std::map<uint32_t, Process> all_;
};

void run_random_life(uint64_t seed) {
  Processes processes(seed);
  const uint32_t groups = 1 + processes.below(20);
  const SmGeometry geometry{.groups = groups, .sms = groups * 8 + processes.below(8)};
  SmPartition partition(geometry);
  std::map<uint32_t, PlannedHolder> planned;
  uint32_t next_id = 0;
  bool have_leasts_fitted = true;
  const auto plan = [&] {
    Planned list;
    uint32_t least = 0;
    for (const auto& [id, one] : planned) {
      list.push_back(one);
      least += one.least;
    }
    have_leasts_fitted = have_leasts_fitted && least <= geometry.groups;
    return partition.plan(list);
  };
  const auto tell = [&] {
    for (const Assignment& assignment : partition.take_assignments()) {
      ASSERT_NE(assignment.groups, 0U);
      ASSERT_EQ(assignment.groups >> geometry.groups, 0U);
      if (have_leasts_fitted)
        ASSERT_GE(count(assignment.groups), static_cast<int>(planned[assignment.to].least));
      processes.tell(assignment);
    }
  };
  for (int step = 0; step < 400; ++step) {
    if (processes.one_in(12)) {
      const uint32_t id = next_id++;
      planned[id] = {.holder = id, .groups = processes.below(geometry.groups + 3)};
      if (processes.one_in(3)) planned[id].least = 1 + processes.below(5);
    }
    if (!planned.empty() && processes.one_in(6)) {
      auto chosen = planned.begin();
      std::advance(chosen, processes.below(static_cast<uint32_t>(planned.size())));
      PlannedHolder& one = chosen->second;
      one.groups = 1 + processes.below(geometry.groups);
      one.is_idle = processes.one_in(3);
      one.can_borrow = !processes.one_in(4);
      if (processes.one_in(6)) {
        processes.die(chosen->first);
        partition.remove(chosen->first);
        planned.erase(chosen);
      } else if (processes.one_in(8)) {
        processes.silence(chosen->first);
      }
    }
    const auto sizes = plan();
    uint32_t sum = 0;
    for (const HolderSize& size : sizes) sum += size.target;
    ASSERT_LE(sum, geometry.groups);
    tell();
    processes.step(partition);
    ASSERT_TRUE(processes.are_disjoint()) << "seed " << seed << " step " << step;
  }
  // Left alone, everybody gets what it was promised.
  const auto sizes = plan();
  for (int round = 0; round < 5; ++round) {
    tell();
    processes.finish(partition);
    ASSERT_TRUE(processes.are_disjoint());
  }
  ASSERT_TRUE(partition.is_settled()) << "seed " << seed;
  for (size_t i = 0; i < sizes.size(); ++i) {
    ASSERT_EQ(count(partition.in_use(sizes[i].holder)), static_cast<int>(sizes[i].target));
    ASSERT_TRUE(sizes[i].target > 0 || planned.size() > geometry.groups);
  }
}

TEST(Partition, SetsAreDisjointAtEveryMomentWhateverHappens) {
  for (uint64_t seed = 1; seed <= 300; ++seed) run_random_life(seed);
}

TEST(Partition, NothingMovesWithoutNeed) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    SmPartition partition(kFifteen);
    Planned planned;
    for (uint32_t id = 0; id < 4; ++id) planned.push_back({.holder = id, .can_borrow = false});
    for (int change = 0; change < 20; ++change) {
      std::vector<SmGroups> before;
      for (PlannedHolder& one : planned) {
        before.push_back(partition.in_use(one.holder));
        one.groups = 1 + static_cast<uint32_t>(random() % 6);
      }
      partition.plan(planned);
      settle(partition);
      for (const PlannedHolder& one : planned) {
        const SmGroups after = partition.in_use(one.holder);
        const SmGroups old = before[one.holder];
        EXPECT_EQ(count(old & after), std::min(count(old), count(after)));
      }
    }
  }
}

}  // namespace
}  // namespace gpushare
