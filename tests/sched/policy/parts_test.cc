// SPDX-License-Identifier: Apache-2.0
// The fair policy's parts on their own: the division, the caps' two levels, the turns.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "sched/policy/background_turns.h"
#include "sched/policy/cap_gate.h"
#include "sched/policy/shares.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

struct DivisionRow {
  const char* description;
  double total;
  std::vector<Demand> demands;
  std::vector<double> shares;
};

class Division : public testing::TestWithParam<DivisionRow> {};
void PrintTo(const DivisionRow& row, std::ostream* out) { *out << row.description; }

TEST_P(Division, Gives) {
  const DivisionRow& row = GetParam();
  std::vector<double> shares(row.demands.size());
  divide(row.total, row.demands, shares);
  for (size_t i = 0; i < shares.size(); ++i) EXPECT_NEAR(shares[i], row.shares[i], 1e-12) << i;
}

INSTANTIATE_TEST_SUITE_P(
    Rows, Division,
    testing::Values(DivisionRow{"nobody", 1, {}, {}}, DivisionRow{"one", 1, {{5, 1}}, {1}},
                    DivisionRow{"by weight", 1, {{1, 1}, {3, 1}}, {0.25, 0.75}},
                    DivisionRow{"a ceiling's rest goes to the others",
                                1,
                                {{1, 0.1}, {1, 1}, {2, 1}},
                                {0.1, 0.3, 0.6}},
                    DivisionRow{"a ceiling that is reached only by another's rest",
                                1,
                                {{1, 0.1}, {1, 0.4}, {1, 1}},
                                {0.1, 0.4, 0.5}},
                    DivisionRow{"all at their ceilings", 1, {{1, 0.1}, {9, 0.2}}, {0.1, 0.2}},
                    DivisionRow{"of a part", 0.5, {{1, 1}, {1, 0.1}}, {0.4, 0.1}},
                    DivisionRow{"a ceiling of nothing", 1, {{1, 0}, {1, 1}}, {0, 1}}));

TEST(Division, IsMaxMinFairForRandomClaims) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> any(0, 1);
  for (int run = 0; run < 500; ++run) {
    std::vector<Demand> demands(1 + random() % 20);
    for (Demand& demand : demands) {
      demand = {1.0 + static_cast<double>(random() % 10'000), random() % 2 == 0 ? 1 : any(random)};
    }
    std::vector<double> shares(demands.size());
    divide(1, demands, shares);
    double sum = 0, ceilings = 0, highest = 0;
    for (size_t i = 0; i < demands.size(); ++i) {
      sum += shares[i];
      ceilings += demands[i].ceiling;
      highest = std::max(highest, shares[i] / demands[i].weight);
      EXPECT_LE(shares[i], demands[i].ceiling);
    }
    EXPECT_NEAR(sum, std::min(1.0, ceilings), 1e-9);
    for (size_t i = 0; i < demands.size(); ++i) {
      const bool is_at_ceiling = shares[i] >= demands[i].ceiling - 1e-12;
      EXPECT_TRUE(is_at_ceiling || shares[i] / demands[i].weight > highest * (1 - 1e-9));
    }
  }
}

struct LevelRow {
  const char* description;
  CapView cap;
  Nanos level;
};

class ResumeLevel : public testing::TestWithParam<LevelRow> {};
void PrintTo(const LevelRow& row, std::ostream* out) { *out << row.description; }

TEST_P(ResumeLevel, Is) { EXPECT_EQ(resume_level(GetParam().cap), GetParam().level); }

INSTANTIATE_TEST_SUITE_P(
    Rows, ResumeLevel,
    testing::Values(LevelRow{"two cycles a period", {0.5, 100ms, 50ms, 0ns}, 12500us},
                    LevelRow{"at least a useful run", {0.5, 10ms, 5ms, 0ns}, 2ms},
                    LevelRow{"never more than the bucket holds", {0.25, 4ms, 1ms, 0ns}, 1ms},
                    LevelRow{"nearly no cap", {1, 100ms, 100ms, 0ns}, 2ms}));

TEST(CapGate, ShutsBelowZeroAndOpensAtTheLevel) {
  CapGate gate(2);
  CapView cap{.fraction = 0.5, .period = 100ms, .burst = 50ms, .tokens = 0ns};
  EXPECT_FALSE(gate.update(1, cap));
  cap.tokens = -1ns;
  EXPECT_TRUE(gate.update(1, cap));
  EXPECT_FALSE(gate.is_shut(0));
  cap.tokens = 12ms;
  EXPECT_TRUE(gate.update(1, cap));
  EXPECT_EQ(until_resume(cap), 1ms);
  cap.tokens = 12500us;
  EXPECT_FALSE(gate.update(1, cap));
  EXPECT_EQ(until_resume(cap), 0ns);
  cap.tokens = 1ns;
  EXPECT_FALSE(gate.update(1, cap));
}

TEST(CapGate, OpensWhenTheCapIsTakenAway) {
  CapGate gate(1);
  EXPECT_TRUE(
      gate.update(0, CapView{.fraction = 0.5, .period = 100ms, .burst = 50ms, .tokens = -1s}));
  EXPECT_FALSE(gate.update(0, std::nullopt));
}

TEST(Cap, OfEverythingNeverRunsEmpty) {
  EXPECT_EQ(until_empty({.fraction = 1, .period = 100ms, .burst = 100ms, .tokens = 1ms}),
            Nanos::max());
  EXPECT_EQ(until_empty({.fraction = 0.5, .period = 100ms, .burst = 50ms, .tokens = 1ms}), 2ms);
  EXPECT_EQ(until_empty({.fraction = 0.5, .period = 100ms, .burst = 50ms, .tokens = -1ms}), 0ms);
}

using Candidate = BackgroundTurns::Candidate;

Candidate candidate(uint32_t process, Priority priority = Priority::kIdle, bool wants = true,
                    Nanos used = {}) {
  return {.process = process, .priority = priority, .weight = 1, .wants_gpu = wants, .used = used};
}

TEST(BackgroundTurns, NobodyHoldsAnEmptyBackground) {
  BackgroundTurns turns(4, 50ms);
  EXPECT_EQ(turns.next(Time{}, {}).holder, std::nullopt);
}

TEST(BackgroundTurns, OneAloneHoldsItForEverWithoutBeingWatched) {
  BackgroundTurns turns(4, 50ms);
  for (int i = 0; i < 10; ++i) {
    const std::vector one = {candidate(3, Priority::kIdle, true, 40ms)};
    const auto turn = turns.next(Time(i * 40ms), one);
    EXPECT_EQ(turn.holder, 3U);
    EXPECT_FALSE(turn.is_contended);
    EXPECT_EQ(turn.ends, Time::max());
  }
}

TEST(BackgroundTurns, AHigherClassGoesFirstAndTheLowerWaits) {
  BackgroundTurns turns(4, 50ms);
  const std::vector idle_alone = {candidate(0)};
  EXPECT_EQ(turns.next(Time{}, idle_alone).holder, 0U);
  const std::vector both = {candidate(0), candidate(1, Priority::kNormal)};
  const auto turn = turns.next(Time(2ms), both);
  EXPECT_EQ(turn.holder, 1U);
  EXPECT_TRUE(turn.is_contended) << "somebody waits: its end must be noticed";
  const std::vector normal_done = {candidate(0), candidate(1, Priority::kNormal, false)};
  EXPECT_EQ(turns.next(Time(4ms), normal_done).holder, 0U);
}

TEST(BackgroundTurns, EndByTimeWhenTheForegroundLeavesNothing) {
  BackgroundTurns turns(4, 50ms);
  const std::vector two = {candidate(0), candidate(1)};
  EXPECT_EQ(turns.next(Time(1s), two).holder, 0U);
  EXPECT_EQ(turns.next(Time(1199ms), two).holder, 0U);
  const std::vector used_a_little = {candidate(0, Priority::kIdle, true, 1ms), candidate(1)};
  EXPECT_EQ(turns.next(Time(1200ms), used_a_little).holder, 1U);
}

TEST(BackgroundTurns, ANewcomerHasNoClaimToThePast) {
  BackgroundTurns turns(4, 50ms);
  Time now{};
  for (int i = 0; i < 100; ++i) {
    const std::vector one = {candidate(0, Priority::kIdle, true, 50ms)};
    turns.next(now += 50ms, one);
  }
  int turns_of_newcomer = 0;
  Nanos used[2] = {};
  for (int i = 0; i < 20; ++i) {
    const std::vector two = {candidate(0, Priority::kIdle, true, used[0]),
                             candidate(1, Priority::kIdle, true, used[1])};
    const uint32_t holder = turns.next(now += 50ms, two).holder.value();
    used[holder] = 50ms;
    used[1 - holder] = 0ms;
    turns_of_newcomer += holder == 1;
  }
  EXPECT_NEAR(turns_of_newcomer, 10, 1);
}

}  // namespace
}  // namespace gpushare
