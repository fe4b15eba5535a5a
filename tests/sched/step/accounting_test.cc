// SPDX-License-Identifier: Apache-2.0
#include "sched/step/accounting.h"

#include <gtest/gtest.h>

#include <random>

namespace gpushare {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr pid_t kA = 10, kB = 20;

Time at(Nanos since_start) { return Time(seconds(100)) + since_start; }

class AccountingTest : public ::testing::Test {
 protected:
  Accounting accounting_{/*has_log=*/true};
  SwitchBatch batch_;

  void SetUp() override {
    accounting_.add(kA, at({}));
    accounting_.add(kB, at({}));
    accounting_.consume({{}, 0, at({})});
  }
  void start(Nanos when, pid_t pid) { batch_.records.push_back({at(when), 0, pid, 0, true}); }
  void stop(Nanos when, pid_t pid) { batch_.records.push_back({at(when), 0, pid, 0, false}); }
  void consume(Nanos until, uint64_t lost = 0) {
    batch_.complete_until = at(until);
    batch_.lost = lost;
    accounting_.consume(std::exchange(batch_, {}));
  }
  // A and B take turns of 1 and 3 ms from `from` to `to`.
  void alternate(Nanos from, Nanos to) {
    for (Nanos t = from; t < to; t += milliseconds(4)) {
      start(t, kA);
      stop(t + milliseconds(1), kA);
      start(t + milliseconds(1), kB);
      stop(t + milliseconds(4), kB);
    }
    consume(to);
  }
};

// Its turn comes again after 160 ms.
TEST_F(AccountingTest, WhoWaitsThroughALongRoundWantsTheGpuAllTheTime) {
  constexpr int kPrograms = 40;
  constexpr pid_t kFirst = 1000;
  for (pid_t pid = kFirst; pid < kFirst + kPrograms; ++pid) {
    accounting_.add(pid, at({}));
    accounting_.set_slice(pid, milliseconds(4));
  }
  for (int turn = 0; turn < 500; ++turn) {
    const Nanos when = milliseconds(4) * turn;
    start(when, kFirst + turn % kPrograms);
    stop(when + milliseconds(4), kFirst + turn % kPrograms);
    consume(when + milliseconds(4));
    if (when < seconds(1)) continue;
    for (pid_t pid = kFirst; pid < kFirst + kPrograms; ++pid)
      ASSERT_TRUE(accounting_.wants_gpu(pid, at(when + milliseconds(4)))) << pid << " " << turn;
  }
  consume(milliseconds(2100));
  EXPECT_TRUE(accounting_.wants_gpu(kFirst, at(milliseconds(2100))));
  EXPECT_FALSE(accounting_.wants_gpu(kFirst, at(milliseconds(2400)))) << "it would have run";
}

TEST_F(AccountingTest, ChargesFromStartToEnd) {
  start(milliseconds(2), kA);
  stop(milliseconds(5), kA);
  start(milliseconds(5), kB);
  stop(milliseconds(6), kB);
  consume(milliseconds(10));
  const Accounting::Charge charge = accounting_.take_charge(kA);
  EXPECT_EQ(charge.used, milliseconds(3));
  EXPECT_EQ(charge.turns, 1u);
  EXPECT_EQ(accounting_.take_charge(kB).used, milliseconds(1));
  EXPECT_EQ(accounting_.take_charge(kA).used, Nanos{}) << "taken already";
  EXPECT_EQ(accounting_.use(kA, at(milliseconds(10))).total, milliseconds(3));
}

TEST_F(AccountingTest, ChargesWhoIsStillOnUpToTheLogsEnd) {
  start(milliseconds(2), kA);
  consume(milliseconds(10));
  EXPECT_EQ(accounting_.take_charge(kA).used, milliseconds(8));
  stop(milliseconds(13), kA);
  consume(milliseconds(20));
  EXPECT_EQ(accounting_.take_charge(kA).used, milliseconds(3));
}

TEST_F(AccountingTest, AStartEndsWhoeverWasOn) {
  start(milliseconds(2), kA);
  start(milliseconds(5), kB);
  consume(milliseconds(6));
  EXPECT_EQ(accounting_.take_charge(kA).used, milliseconds(3));
  EXPECT_EQ(accounting_.take_charge(kB).used, milliseconds(1));
}

// A turn of 6 ms that its slice's end cuts off is 6.144 ms long, and 80 us later comes the next
// one.
TEST_F(AccountingTest, WhatItTakesToLoadAndStoreStateIsNobodysUse) {
  using std::chrono::microseconds;
  accounting_.set_slice(kA, milliseconds(6));
  accounting_.set_slice(kB, milliseconds(14));
  Nanos t{};
  for (int i = 0; i < 100; ++i) {
    start(t, kA);
    stop(t += microseconds(6144), kA);
    start(t += microseconds(80), kB);
    stop(t += microseconds(14144), kB);
    t += microseconds(80);
    consume(t - microseconds(40));
  }
  EXPECT_NEAR(accounting_.take_charge(kA).used.count(), 600e6, 0.2e6);
  EXPECT_NEAR(accounting_.take_charge(kB).used.count(), 1400e6, 0.2e6);
  EXPECT_NEAR(accounting_.share(kA), 6 / 20.448, 0.002);
  EXPECT_NEAR(accounting_.switching(), 0.448 / 20.448, 0.002);
  consume(seconds(5));
  EXPECT_EQ(accounting_.switching(), 0);
}

TEST_F(AccountingTest, ATurnThatEndsByItselfCountsWhole) {
  using std::chrono::microseconds;
  accounting_.set_slice(kA, milliseconds(6));
  struct Turn {
    const char* description;
    Nanos length, used;
  };
  Nanos t{};
  for (const auto& [description, length, used] :
       {Turn{"before its slice's end", microseconds(5900), microseconds(5900)},
        Turn{"later than any switch takes", microseconds(6300), microseconds(6300)},
        Turn{"at the end of its third slice", microseconds(18144), microseconds(18000)}}) {
    start(t, kA);
    stop(t + length, kA);
    start(t += milliseconds(20), kA);  // on which what was too much is taken off
    consume(t += milliseconds(1));
    stop(t, kA);
    EXPECT_EQ(accounting_.take_charge(kA).used, used + milliseconds(1)) << description;
  }
}

TEST_F(AccountingTest, ATurnThatWasFrozenCountsWhole) {
  using std::chrono::microseconds;
  accounting_.set_slice(kA, milliseconds(6));
  start({}, kA);
  accounting_.set_frozen(kA, true, at(milliseconds(2)));
  accounting_.set_frozen(kA, false, at(milliseconds(5)));
  stop(microseconds(6144), kA);
  start(milliseconds(10), kA);
  consume(milliseconds(11));
  EXPECT_EQ(accounting_.take_charge(kA).used, microseconds(3144) + milliseconds(1));
}

TEST_F(AccountingTest, SharesAreOfTheLastSecond) {
  alternate({}, seconds(2));
  EXPECT_NEAR(accounting_.share(kA), 0.25, 0.001);
  EXPECT_NEAR(accounting_.share(kB), 0.75, 0.001);
  EXPECT_NEAR(accounting_.busy(), 1.0, 0.001);
  EXPECT_NEAR(accounting_.switches_per_s(), 500, 1);
  EXPECT_NEAR(accounting_.use(kA, at(seconds(2))).switches_per_s, 250, 1);
  consume(seconds(4));
  EXPECT_EQ(accounting_.share(kA), 0);
}

TEST_F(AccountingTest, AShareIsUnknownUntilThereIsSomethingToMeasure) {
  consume(milliseconds(150));
  EXPECT_LT(accounting_.share(kA), 0);
  alternate(milliseconds(152), milliseconds(400));
  EXPECT_GT(accounting_.share(kA), 0);
  EXPECT_LT(accounting_.share(77), 0) << "nobody";
}

TEST_F(AccountingTest, HistoryHasOneSampleASecondAndStartsUnknown) {
  alternate({}, milliseconds(2100));
  const auto history = accounting_.use(kB, at(seconds(2))).history_permille;
  EXPECT_EQ(history[kHistory - 1], 750);
  EXPECT_EQ(history[kHistory - 2], 750);
  EXPECT_EQ(history[kHistory - 3], 0xFFFF);
}

TEST_F(AccountingTest, OnlyWorkOfLateMeansItWantsTheGpu) {
  alternate({}, seconds(1));
  EXPECT_TRUE(accounting_.wants_gpu(kA, at(seconds(1))));
  consume(milliseconds(1090));
  EXPECT_TRUE(accounting_.wants_gpu(kA, at(milliseconds(1090))));
  consume(milliseconds(1500));
  EXPECT_FALSE(accounting_.wants_gpu(kA, at(milliseconds(1500))));
}

TEST_F(AccountingTest, WhatIsFrozenStillWantsWhatItWanted) {
  alternate({}, seconds(1));
  accounting_.set_frozen(kA, true, at(seconds(1)));
  consume(seconds(3));
  EXPECT_TRUE(accounting_.wants_gpu(kA, at(seconds(3))));
  accounting_.set_frozen(kA, false, at(seconds(3)));
  consume(milliseconds(3050));
  EXPECT_TRUE(accounting_.wants_gpu(kA, at(milliseconds(3050)))) << "it gets time to show";
  consume(milliseconds(3500));
  EXPECT_FALSE(accounting_.wants_gpu(kA, at(milliseconds(3500))));
}

TEST_F(AccountingTest, ALoneContextIsNotChargedWhileFrozen) {
  // On from 0 without a record; frozen 30 ms of every 100.
  start({}, kA);
  for (int i = 0; i < 10; ++i) {
    accounting_.set_frozen(kA, true, at(milliseconds(100 * i + 20)));
    accounting_.set_frozen(kA, false, at(milliseconds(100 * i + 50)));
  }
  consume(seconds(1));
  EXPECT_EQ(accounting_.take_charge(kA).used, milliseconds(700));
}

TEST_F(AccountingTest, AFreezeCountsFromItsInstantAlsoWhenTheLogIsBehind) {
  start({}, kA);
  consume(milliseconds(10));
  accounting_.set_frozen(kA, true, at(milliseconds(12)));
  consume(milliseconds(11));
  EXPECT_EQ(accounting_.take_charge(kA).used, milliseconds(11));
  consume(milliseconds(20));
  EXPECT_EQ(accounting_.take_charge(kA).used, milliseconds(1));
}

TEST_F(AccountingTest, ALoneContextIsChargedByTheDriversSample) {
  start({}, kA);
  consume(seconds(4));
  EXPECT_TRUE(accounting_.needs_samples());
  EXPECT_EQ(accounting_.take_charge(kA).used, seconds(4)) << "not known: busy";
  const std::vector<Utilisation> quarter{{kA, 0, 0.25}};
  accounting_.sample(quarter, at(seconds(4)));
  consume(seconds(5));
  EXPECT_EQ(accounting_.take_charge(kA).used, seconds(1)) << "of two samples the larger counts";
  accounting_.sample(quarter, at(seconds(5)));
  consume(seconds(6));
  EXPECT_NEAR(accounting_.take_charge(kA).used.count(), 250e6, 1e6);
  EXPECT_NEAR(accounting_.share(kA), 0.25, 0.01);
  EXPECT_TRUE(accounting_.wants_gpu(kA, at(seconds(6))));
  accounting_.sample({}, at(seconds(6)));  // the driver leaves out who did nothing
  accounting_.sample({}, at(seconds(7)));
  consume(seconds(7));
  accounting_.take_charge(kA);
  consume(seconds(8));
  EXPECT_EQ(accounting_.take_charge(kA).used, Nanos{});
  EXPECT_FALSE(accounting_.wants_gpu(kA, at(seconds(8))));
}

TEST_F(AccountingTest, TheFirstSecondsOfAProcessAreNotSampled) {
  start({}, kA);
  accounting_.sample({}, at(seconds(1)));
  accounting_.sample({}, at(seconds(2)));
  consume(seconds(3));
  EXPECT_EQ(accounting_.take_charge(kA).used, seconds(3));
}

TEST_F(AccountingTest, TheSampleOfAFrozenProcessIsScaledUpToWhatItDidWhenThawed) {
  start({}, kA);
  for (int i = 0; i < 60; ++i) {
    accounting_.set_frozen(kA, true, at(milliseconds(100 * i + 30)));
    accounting_.set_frozen(kA, false, at(milliseconds(100 * i + 100)));
  }
  // 26 % of the second, of the 30 % it was let run: saturating.
  const std::vector<Utilisation> sampled{{kA, 0, 0.26}};
  for (const seconds second : {seconds(4), seconds(5), seconds(6)}) {
    consume(second);
    accounting_.sample(sampled, at(second));
  }
  accounting_.take_charge(kA);
  consume(seconds(7));
  EXPECT_EQ(accounting_.take_charge(kA).used, seconds(1));
}

TEST_F(AccountingTest, AnOldSampleIsForgotten) {
  start({}, kA);
  accounting_.sample({}, at(seconds(3)));
  accounting_.sample({}, at(seconds(4)));
  consume(seconds(10));
  accounting_.take_charge(kA);
  consume(seconds(11));
  EXPECT_EQ(accounting_.take_charge(kA).used, seconds(1));
}

TEST_F(AccountingTest, WhoWasThereBeforeUsIsFoundByTheSamples) {
  const std::vector<Utilisation> busy{{kB, 0, 0.98}};
  consume(seconds(1));
  accounting_.sample(busy, at(seconds(1)));
  consume(seconds(2));
  EXPECT_GT(accounting_.take_charge(kB).used, milliseconds(800));
  EXPECT_EQ(accounting_.take_charge(kA).used, Nanos{});
}

TEST(Accounting, AnOnlyProcessIsResidentWhereNothingElseIsKnown) {
  Accounting accounting(true);
  accounting.add(kA, at({}));
  accounting.consume({{}, 0, at({})});
  accounting.consume({{}, 0, at(seconds(1))});
  EXPECT_GE(accounting.take_charge(kA).used, milliseconds(800));
}

TEST_F(AccountingTest, TimeBeforeTheFirstRecordAfterALossIsNobodys) {
  start({}, kA);
  consume(milliseconds(10));
  accounting_.take_charge(kA);
  start(milliseconds(50), kB);
  consume(milliseconds(60), /*lost=*/100);
  EXPECT_EQ(accounting_.take_charge(kA).used, Nanos{});
  EXPECT_EQ(accounting_.take_charge(kB).used, milliseconds(10));
  EXPECT_EQ(accounting_.unattributed(), milliseconds(40));
  EXPECT_EQ(accounting_.lost(), 100u);
}

TEST_F(AccountingTest, ProcessesThatAreNotOursOnlyMakeTheGpuBusy) {
  start({}, 999);
  consume(seconds(1));
  EXPECT_NEAR(accounting_.busy(), 1.0, 0.001);
  EXPECT_EQ(accounting_.take_charge(999).used, Nanos{});
  EXPECT_EQ(accounting_.take_charge(kA).used, Nanos{});
}

TEST_F(AccountingTest, WithoutALogSharesAreTheDriversSamples) {
  Accounting accounting(false);
  accounting.add(kA, at({}));
  const std::vector<Utilisation> sampled{{kA, 0, 0.4}};
  EXPECT_TRUE(accounting.needs_samples());
  accounting.sample(sampled, at(seconds(1)));
  accounting.consume({{}, 0, at(seconds(1))});
  EXPECT_DOUBLE_EQ(accounting.share(kA), 0.4);
  EXPECT_DOUBLE_EQ(accounting.busy(), 0.4);
  EXPECT_LT(accounting.switches_per_s(), 0);
  EXPECT_TRUE(accounting.wants_gpu(kA, at(seconds(1))));
  EXPECT_EQ(accounting.take_charge(kA).used, Nanos{});
}

// Whatever the log says in whatever pieces: nobody is charged more than the time that passed, all
// together neither, and cutting the log elsewhere changes nothing.
TEST(Accounting, ChargesNeverExceedTimeAndDoNotDependOnTheBatches) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    std::vector<SwitchRecord> records;
    Nanos t{};
    for (int i = 0; i < 200; ++i) {
      t += Nanos(random() % 5'000'000);
      records.push_back({at(t), 0, static_cast<pid_t>(random() % 5), 0, random() % 2 == 0});
    }
    std::vector<Nanos> totals;
    for (const std::size_t batch : {std::size_t{1}, std::size_t{7}, records.size()}) {
      Accounting accounting(true);
      for (pid_t pid = 1; pid < 5; ++pid) accounting.add(pid, at({}));
      accounting.consume({{}, 0, at({})});
      for (std::size_t i = 0; i < records.size(); i += batch) {
        const std::size_t end = std::min(records.size(), i + batch);
        accounting.consume(
            {{records.begin() + static_cast<long>(i), records.begin() + static_cast<long>(end)},
             0,
             records[end - 1].time});
      }
      Nanos sum{};
      for (pid_t pid = 1; pid < 5; ++pid) {
        const Nanos used = accounting.take_charge(pid).used;
        EXPECT_LE(used, t);
        sum += used;
      }
      EXPECT_LE(sum, t);
      totals.push_back(sum);
    }
    EXPECT_EQ(totals[0], totals[1]);
    EXPECT_EQ(totals[0], totals[2]);
  }
}

}  // namespace
}  // namespace gpushare
