// SPDX-License-Identifier: Apache-2.0
#include "sched/account/accounting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/sched/account/accounting_rig.h"

namespace gpushare {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
class AccountingTest : public test::AccountingTest {};

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
  EXPECT_TRUE(accounting_.wants_gpu(kFirst, at(milliseconds(2400)))) << "the log is late";
  consume(milliseconds(2400));
  EXPECT_FALSE(accounting_.wants_gpu(kFirst, at(milliseconds(2400)))) << "it would have run";
}

// The log is late: what it tells of the time before another had the pid is not the other's.
TEST_F(AccountingTest, WhatALateLogTellsOfAnEarlierBearerIsTheEarlierOnes) {
  start(milliseconds(1), kA);
  consume(milliseconds(2));
  accounting_.succeed(kA, at(milliseconds(5)), at(milliseconds(8)));
  EXPECT_EQ(accounting_.take_charge(kA).gross(), Nanos{}) << "nothing is known of it";
  EXPECT_EQ(accounting_.take_charge(kA, at(milliseconds(5))).gross(), milliseconds(1));
  start(milliseconds(7), kA);
  stop(milliseconds(9), kA);
  consume(milliseconds(10));
  EXPECT_EQ(accounting_.take_charge(kA, at(milliseconds(5))).gross(), milliseconds(3));
  EXPECT_EQ(accounting_.take_charge(kA).gross(), milliseconds(2));
  accounting_.close(kA, at(milliseconds(5)));
  EXPECT_EQ(accounting_.take_charge(kA, at(milliseconds(5))).gross(), Nanos{});
}

TEST_F(AccountingTest, ChargesFromStartToEnd) {
  start(milliseconds(2), kA);
  stop(milliseconds(5), kA);
  start(milliseconds(5), kB);
  stop(milliseconds(6), kB);
  consume(milliseconds(10));
  const Accounting::Charge charge = accounting_.take_charge(kA);
  EXPECT_EQ(charge.net(), milliseconds(3));
  EXPECT_EQ(charge.presumed, microseconds(702)) << "beyond its slice it may have been alone";
  EXPECT_EQ(charge.turns, 1u);
  EXPECT_EQ(accounting_.take_charge(kB).gross(), milliseconds(1));
  EXPECT_EQ(accounting_.take_charge(kA).gross(), Nanos{}) << "taken already";
  EXPECT_EQ(accounting_.use(kA, at(milliseconds(10))).total, microseconds(2298));
}

TEST_F(AccountingTest, ChargesWhoIsStillOnUpToTheLogsEnd) {
  start(milliseconds(2), kA);
  consume(milliseconds(10));
  EXPECT_EQ(accounting_.take_charge(kA).gross(), milliseconds(8));
  stop(milliseconds(13), kA);
  consume(milliseconds(20));
  EXPECT_EQ(accounting_.take_charge(kA).gross(), milliseconds(3));
}

TEST_F(AccountingTest, NothingIsChargedForTimeThatHasNotBeen) {
  start(milliseconds(2), kA);
  consume(milliseconds(10));
  accounting_.take_charge(kA);
  start(seconds(10), kB);  // by a clock that has jumped
  batch_.read_at = at(milliseconds(21));
  consume(milliseconds(20));
  EXPECT_EQ(accounting_.take_charge(kA).gross(), milliseconds(11));
  start(milliseconds(30), kA);
  consume(milliseconds(40));
  EXPECT_EQ(accounting_.take_charge(kB).gross(), milliseconds(9));
  EXPECT_EQ(accounting_.take_charge(kA).gross(), milliseconds(10));
}

TEST_F(AccountingTest, AStartEndsWhoeverWasOn) {
  start(milliseconds(2), kA);
  start(milliseconds(5), kB);
  consume(milliseconds(6));
  EXPECT_EQ(accounting_.take_charge(kA).gross(), milliseconds(3));
  EXPECT_EQ(accounting_.take_charge(kB).gross(), milliseconds(1));
}

// A turn of 6 ms that its slice's end cuts off is 6.144 ms long, and 80 us later comes the next
// one.
TEST_F(AccountingTest, WhatItTakesToLoadAndStoreStateIsNobodysUse) {
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
  EXPECT_NEAR(accounting_.take_charge(kA).gross().count(), 600e6, 0.2e6);
  EXPECT_NEAR(accounting_.take_charge(kB).gross().count(), 1400e6, 0.2e6);
  EXPECT_NEAR(accounting_.share(kA), 6 / 20.448, 0.002);
  EXPECT_NEAR(accounting_.switching(), 0.448 / 20.448, 0.002);
  consume(seconds(5));
  EXPECT_EQ(accounting_.switching(), 0);
}

TEST_F(AccountingTest, ATurnThatEndsByItselfCountsWhole) {
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
    EXPECT_EQ(accounting_.take_charge(kA).gross(), used + milliseconds(1)) << description;
  }
}

TEST_F(AccountingTest, ATurnThatWasFrozenCountsWhole) {
  accounting_.set_slice(kA, milliseconds(6));
  start({}, kA);
  accounting_.set_frozen(kA, true, at(milliseconds(2)));
  accounting_.set_frozen(kA, false, at(milliseconds(5)));
  stop(microseconds(6144), kA);
  start(milliseconds(10), kA);
  consume(milliseconds(11));
  EXPECT_EQ(accounting_.take_charge(kA).gross(), microseconds(3144) + milliseconds(1));
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
  EXPECT_EQ(accounting_.take_charge(kA).gross(), milliseconds(700));
}

// A second context, of which nobody knows.
TEST_F(AccountingTest, ATurnThatBeginsLongAfterAFreezeIsChargedAndTold) {
  accounting_.set_frozen(kA, true, at(milliseconds(10)));
  start(milliseconds(11), kA);  // the clocks differ by so much
  stop(milliseconds(12), kA);
  consume(milliseconds(30));
  EXPECT_THAT(accounting_.take_escaped(), IsEmpty());
  EXPECT_EQ(accounting_.take_charge(kA).gross(), Nanos{});
  start(milliseconds(30), kA);
  stop(milliseconds(33), kA);
  consume(milliseconds(35));
  EXPECT_THAT(accounting_.take_escaped(), IsEmpty()) << "a thaw may be entered late";
  consume(milliseconds(45));
  EXPECT_THAT(accounting_.take_escaped(), ElementsAre(kA));
  EXPECT_THAT(accounting_.take_escaped(), IsEmpty()) << "once";
  EXPECT_EQ(accounting_.take_charge(kA).gross(), milliseconds(3));
}

TEST_F(AccountingTest, AThawThatIsEnteredAfterTheTurnThatItLetBeginIsNoEscape) {
  accounting_.set_frozen(kA, true, at(milliseconds(10)));
  start(milliseconds(30), kA);
  consume(milliseconds(32));
  accounting_.set_frozen(kA, false, at(milliseconds(31)));
  consume(milliseconds(100));
  EXPECT_THAT(accounting_.take_escaped(), IsEmpty());
}

TEST_F(AccountingTest, AFreezeCountsFromItsInstantAlsoWhenTheLogIsBehind) {
  start({}, kA);
  consume(milliseconds(10));
  accounting_.set_frozen(kA, true, at(milliseconds(12)));
  consume(milliseconds(11));
  EXPECT_EQ(accounting_.take_charge(kA).gross(), milliseconds(11));
  consume(milliseconds(20));
  EXPECT_EQ(accounting_.take_charge(kA).gross(), milliseconds(1));
}

TEST_F(AccountingTest, WhoWasThereBeforeUsIsFoundByTheSamples) {
  consume(seconds(1));
  accounting_.sample({.from = at({}), .until = at(seconds(1)), .of = {{kB, 0.98}}}, at(seconds(1)));
  consume(seconds(2));
  EXPECT_GT(accounting_.take_charge(kB).gross(), milliseconds(800));
  EXPECT_EQ(accounting_.take_charge(kA).gross(), Nanos{});
}

TEST_F(AccountingTest, AnOnlyProcessIsResidentWhereNothingElseIsKnown) {
  Accounting accounting(true);
  accounting.add(kA, at({}));
  accounting.consume({{}, 0, at({})});
  accounting.consume({{}, 0, at(seconds(1))});
  EXPECT_GE(accounting.take_charge(kA).gross(), milliseconds(800));
}

TEST_F(AccountingTest, TimeBeforeTheFirstRecordAfterALossIsNobodys) {
  start({}, kA);
  consume(milliseconds(10));
  accounting_.take_charge(kA);
  start(milliseconds(50), kB);
  consume(milliseconds(60), /*lost=*/100);
  EXPECT_EQ(accounting_.take_charge(kA).gross(), Nanos{});
  EXPECT_EQ(accounting_.take_charge(kB).gross(), milliseconds(10));
  EXPECT_EQ(accounting_.unattributed(), milliseconds(40));
  EXPECT_EQ(accounting_.lost(), 100u);
}

TEST_F(AccountingTest, AfterALossWithoutARecordNobodyIsChargedUntilTheNext) {
  start({}, kA);
  consume(milliseconds(10));
  accounting_.take_charge(kA);
  consume(milliseconds(60), /*lost=*/2);
  EXPECT_EQ(accounting_.take_charge(kA).gross(), Nanos{});
  EXPECT_EQ(accounting_.unattributed(), milliseconds(50));
}

// It may be resident without a record only if it was there before the log was read.
TEST_F(AccountingTest, WhoHasNeverComeOnAfterAnotherWentOffIsNotResident) {
  accounting_.remove(kB);
  start({}, 999);
  stop(milliseconds(1), 999);
  consume(seconds(1));
  EXPECT_EQ(accounting_.take_charge(kA).gross(), Nanos{});
}

TEST_F(AccountingTest, WhoIsNotTheOneThatTheLogNamesIsNotResident) {
  accounting_.remove(kB);
  start({}, 999);
  consume(seconds(1));
  EXPECT_EQ(accounting_.take_charge(kA).gross(), Nanos{});
}

TEST_F(AccountingTest, NobodyIsResidentBeforeItCame) {
  accounting_.remove(kA);
  accounting_.remove(kB);
  accounting_.add(30, at(milliseconds(950)));
  consume(milliseconds(950));
  EXPECT_EQ(accounting_.take_charge(30).gross(), Nanos{});
  consume(seconds(2));
  EXPECT_GT(accounting_.take_charge(30).gross(), milliseconds(900)) << "it is alone";
}

TEST_F(AccountingTest, AFreezeAtTheInstantOfASuccessionIsOfTheEarlierBearer) {
  accounting_.set_frozen(kA, true, at(milliseconds(5)));
  accounting_.succeed(kA, at(milliseconds(5)), at(milliseconds(8)));
  start(milliseconds(6), kA);
  consume(milliseconds(16));
  EXPECT_EQ(accounting_.take_charge(kA).gross(), milliseconds(10));
}

TEST_F(AccountingTest, ProcessesThatAreNotOursOnlyMakeTheGpuBusy) {
  start({}, 999);
  consume(seconds(1));
  EXPECT_NEAR(accounting_.busy(), 1.0, 0.001);
  EXPECT_EQ(accounting_.take_charge(999).gross(), Nanos{});
  EXPECT_EQ(accounting_.take_charge(kA).gross(), Nanos{});
}

TEST_F(AccountingTest, WithoutALogSharesAreTheDriversSamples) {
  Accounting accounting(false);
  accounting.add(kA, at({}));
  const UtilisationSample sampled{
      .from = at({}), .until = at(seconds(1)), .busy = 0.4, .of = {{kA, 0.4}}};
  EXPECT_TRUE(accounting.needs_samples());
  accounting.consume({{}, 0, at(seconds(1))});
  accounting.sample(sampled, at(seconds(1)));
  EXPECT_DOUBLE_EQ(accounting.share(kA), 0.4);
  EXPECT_DOUBLE_EQ(accounting.busy(), 0.4);
  EXPECT_LT(accounting.switches_per_s(), 0);
  EXPECT_TRUE(accounting.wants_gpu(kA, at(seconds(1))));
  EXPECT_EQ(accounting.take_charge(kA).gross(), Nanos{});
}

// Whatever the log says in whatever pieces: nobody is charged more than the time that passed, all
// together neither, and cutting the log elsewhere changes nothing.
TEST_F(AccountingTest, ChargesNeverExceedTimeAndDoNotDependOnTheBatches) {
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
        const Nanos used = accounting.take_charge(pid).gross();
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
