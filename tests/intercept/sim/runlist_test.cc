// SPDX-License-Identifier: Apache-2.0
// Tests properties of the runlist under random changes.
#include "intercept/sim/model/runlist.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace gpushare::sim {
namespace {

using namespace std::chrono_literals;

// Drives a runlist with random arrivals, departures, slices and removals, in random steps.
struct RandomRun {
  explicit RandomRun(unsigned seed) : random(seed) {
    for (EntryId entry = 1; entry <= 5; ++entry) add(entry);
  }

  unsigned pick(unsigned below) { return static_cast<unsigned>(random() % below); }
  void add(EntryId entry) {
    list.add(entry, Nanos(Micros(pick(2) == 0 ? 1 : 1 + pick(4000))));
    entries.push_back(entry);
  }
  void advance_to(Time to) {
    while (list.next() <= to) {
      now = std::max(now, list.next());
      list.advance(now);
    }
    now = to;
  }
  void change() {
    if (entries.empty()) return add(next_entry++);
    const EntryId entry = entries[pick(static_cast<unsigned>(entries.size()))];
    switch (pick(10)) {
      case 0:
        list.remove(entry, now);
        std::erase(entries, entry);
        break;
      case 1:
        add(next_entry++);
        break;
      case 2:
        list.set_slice(entry, Nanos(Micros(1 + pick(3000))), now);
        break;
      default:
        list.set_runnable(entry, pick(2) == 0, now);
    }
  }
  void run(int changes) {
    for (int i = 0; i < changes; ++i) {
      advance_to(now + Nanos(pick(2'000'000)));
      change();
    }
  }

  std::mt19937 random;
  Time now{};
  Runlist list{SwitchCosts{}, Time{}};
  std::vector<EntryId> entries;
  EntryId next_entry = 6;
};

class RunlistProperties : public testing::TestWithParam<unsigned> {};

TEST_P(RunlistProperties, TimeIsConserved) {
  RandomRun run(GetParam());
  run.run(2000);
  const auto totals = run.list.totals(run.now);
  EXPECT_EQ(totals.resident + totals.changing + totals.empty, run.now - Time{});
}

TEST_P(RunlistProperties, RecordsAlternateAndResidencesDoNotOverlap) {
  RandomRun run(GetParam());
  run.run(2000);
  EntryId resident = 0;
  Time last{};
  Nanos logged{};
  Time begun{};
  for (const auto& record : run.list.take_records()) {
    EXPECT_GE(record.time, last);
    if (record.is_start) {
      ASSERT_EQ(resident, 0U);
      resident = record.entry;
      begun = record.time;
    } else {
      ASSERT_EQ(resident, record.entry);
      resident = 0;
      logged += record.time - begun;
    }
    last = record.time;
  }
  if (resident != 0) logged += run.now - begun;
  EXPECT_EQ(logged, run.list.totals(run.now).resident) << "the log and the accounting agree";
}

TEST_P(RunlistProperties, NobodyWaitsForeverWhoIsRunnable) {
  RandomRun run(GetParam());
  run.run(500);
  for (const EntryId entry : run.entries) run.list.set_runnable(entry, true, run.now);
  for (const EntryId entry : run.entries) run.list.set_slice(entry, 1ms, run.now);
  run.list.take_records();
  run.advance_to(run.now + 10ms * run.entries.size());
  std::map<EntryId, int> starts;
  for (const auto& record : run.list.take_records()) starts[record.entry] += record.is_start;
  if (run.entries.size() < 2) return;
  for (const EntryId entry : run.entries) EXPECT_GE(starts[entry], 2) << entry;
}

INSTANTIATE_TEST_SUITE_P(Seeds, RunlistProperties, testing::Range(1U, 9U));

TEST(Runlist, AContextAloneStaysAndLogsNothingMoreThanItsStart) {
  Runlist list(SwitchCosts{}, Time{});
  list.add(1, 1ms);
  list.set_runnable(1, true, Time{});
  for (Time now{}; list.next() != Time::max(); now = list.next()) list.advance(list.next());
  EXPECT_EQ(list.progressing(), 1U);
  list.set_runnable(1, false, Time(1s));
  EXPECT_EQ(list.next(), Time::max()) << "it stays, idle";
  list.set_runnable(1, true, Time(2s));
  EXPECT_EQ(list.progressing(), 1U) << "and goes on at once";
  EXPECT_EQ(list.take_records().size(), 1U);
}

TEST(Runlist, ANewcomerWaitsForTheRestOfTheSliceOnly) {
  Runlist list(SwitchCosts{}, Time{});
  list.add(1, 2048us);
  list.add(2, 2048us);
  list.set_runnable(1, true, Time{});
  list.advance(Time(80us));  // its timer starts
  list.advance(Time(82us));
  list.set_runnable(2, true, Time(80us + 3 * 2048us + 48us));
  EXPECT_EQ(list.next(), Time(80us + 4 * 2048us));
}

}  // namespace
}  // namespace gpushare::sim
