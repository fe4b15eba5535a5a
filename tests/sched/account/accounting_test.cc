// SPDX-License-Identifier: Apache-2.0
#include "sched/account/accounting.h"
#include "sched/account/cap_trust.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace gpushare {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

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
  EXPECT_TRUE(accounting_.wants_gpu(kFirst, at(milliseconds(2400)))) << "the log is late";
  consume(milliseconds(2400));
  EXPECT_FALSE(accounting_.wants_gpu(kFirst, at(milliseconds(2400)))) << "it would have run";
}

// The log is late: what it tells of the time before another had the pid is not the other's.
TEST_F(AccountingTest, WhatALateLogTellsOfAnEarlierBearerIsTheEarlierOnes) {
  start(milliseconds(1), kA);
  consume(milliseconds(2));
  accounting_.succeed(kA, at(milliseconds(5)), at(milliseconds(8)));
  EXPECT_EQ(accounting_.take_charge(kA).used, Nanos{}) << "nothing is known of it";
  EXPECT_EQ(accounting_.take_former_charge(kA, at(milliseconds(5))).used, milliseconds(1));
  start(milliseconds(7), kA);
  stop(milliseconds(9), kA);
  consume(milliseconds(10));
  EXPECT_EQ(accounting_.take_former_charge(kA, at(milliseconds(5))).used, milliseconds(3));
  EXPECT_EQ(accounting_.take_charge(kA).used, milliseconds(2));
  accounting_.remove_former(kA, at(milliseconds(5)));
  EXPECT_EQ(accounting_.take_former_charge(kA, at(milliseconds(5))).used, Nanos{});
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

// A second context, of which nobody knows.
TEST_F(AccountingTest, ATurnThatBeginsLongAfterAFreezeIsChargedAndTold) {
  accounting_.set_frozen(kA, true, at(milliseconds(10)));
  start(milliseconds(11), kA);  // the clocks differ by so much
  stop(milliseconds(12), kA);
  consume(milliseconds(30));
  EXPECT_THAT(accounting_.take_escaped(), IsEmpty());
  EXPECT_EQ(accounting_.take_charge(kA).used, Nanos{});
  start(milliseconds(30), kA);
  stop(milliseconds(33), kA);
  consume(milliseconds(35));
  EXPECT_THAT(accounting_.take_escaped(), IsEmpty()) << "a thaw may be entered late";
  consume(milliseconds(45));
  EXPECT_THAT(accounting_.take_escaped(), ElementsAre(kA));
  EXPECT_THAT(accounting_.take_escaped(), IsEmpty()) << "once";
  EXPECT_EQ(accounting_.take_charge(kA).used, milliseconds(3));
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

// Of a process with the shim, in its first seconds.
class StartTest : public AccountingTest {
 protected:
  // The agent's steps, in which A says what `word` gives for the instant.
  template <class Word>
  void steps(Nanos from, Nanos to, const Word& word) {
    for (Nanos now = from + milliseconds(2); now <= to; now += milliseconds(2)) {
      accounting_.hear(kA, word(now), at(now));
      consume(now);
    }
  }
  static LoneContext::Word nothing(Nanos) { return {}; }
  static LoneContext::Word one_launch(Nanos) { return {.launches = 1}; }
  Nanos used() { return accounting_.take_charge(kA).used; }
};

TEST_F(StartTest, WhatIsResidentAndSaysThatItHasLaunchedNothingUsesNothing) {
  start({}, kA);
  steps({}, seconds(2), nothing);
  EXPECT_FALSE(accounting_.wants_gpu(kA, at(seconds(2))));
  const Accounting::Charge charge = accounting_.take_charge(kA);
  EXPECT_EQ(charge.used, Nanos{});
  EXPECT_EQ(charge.excused, seconds(2));
  EXPECT_EQ(accounting_.share(kA), 0);
  EXPECT_EQ(accounting_.busy(), 0);
  EXPECT_EQ(accounting_.use(kA, at(seconds(2))).total, Nanos{});
}

TEST_F(StartTest, WithoutTheShimItIsUse) {
  start({}, kA);
  consume(seconds(2));
  EXPECT_EQ(used(), seconds(2));
}

// It may be that others waited.
TEST_F(StartTest, ATurnThatIsNoLongerThanItsSliceIsUse) {
  for (const bool is_set : {false, true}) {
    if (is_set) accounting_.set_slice(kA, milliseconds(7));
    const Nanos slice = is_set ? Nanos(milliseconds(7)) : Accounting::kDriversSlice;
    const Nanos from = milliseconds(is_set ? 1000 : 0);
    for (Nanos turn{}; turn < milliseconds(500); turn += milliseconds(20)) {
      start(from + turn, kA);
      stop(from + turn + slice, kA);
      start(from + turn + slice, kB);
      stop(from + turn + milliseconds(20), kB);
      steps(from + turn, from + turn + milliseconds(20), nothing);
    }
    const Accounting::Charge charge = accounting_.take_charge(kA);
    EXPECT_GE(charge.used, 24 * slice);
    EXPECT_EQ(charge.excused, Nanos{});
  }
}

TEST_F(StartTest, ALongerTurnIsNoUseFromItsBeginOn) {
  start({}, kA);
  stop(milliseconds(30), kA);
  start(milliseconds(30), kB);
  for (Nanos now{}; now <= milliseconds(30); now += milliseconds(1))
    accounting_.hear(kA, {}, at(now));
  consume(milliseconds(40));
  EXPECT_EQ(used(), Nanos{});
}

TEST_F(StartTest, WhatItLaunchesIsUseUntilItRests) {
  start({}, kA);
  steps({}, milliseconds(500), nothing);
  EXPECT_EQ(used(), Nanos{});
  steps(milliseconds(500), seconds(1), [](Nanos now) {
    return LoneContext::Word{.launches = static_cast<uint64_t>(now / milliseconds(10)),
                             .waits = false};
  });
  EXPECT_EQ(used(), milliseconds(500)) << "it launches every 10 ms";
  steps(seconds(1), milliseconds(1200),
        [](Nanos) { return LoneContext::Word{.launches = 100, .waits = true}; });
  EXPECT_EQ(used(), milliseconds(200)) << "a thread waits for what is in flight";
  steps(milliseconds(1200), milliseconds(1500),
        [](Nanos) { return LoneContext::Word{.launches = 100, .waits = false}; });
  EXPECT_LE(used(), LoneContext::kRest + milliseconds(2));
}

TEST_F(StartTest, ALaunchBetweenTwoStepsIsSeen) {
  start({}, kA);
  steps({}, milliseconds(100), nothing);
  accounting_.take_charge(kA);
  accounting_.hear(kA, one_launch({}), at(milliseconds(200)));
  consume(milliseconds(200));
  EXPECT_EQ(used(), milliseconds(100));
}

// While many programs start the driver answers late, and so does the log.
TEST_F(StartTest, WhatALateLogTellsOfTheTimeBeforeItsFirstLaunchIsNoUse) {
  start({}, kA);
  for (Nanos now = milliseconds(300); now <= milliseconds(400); now += milliseconds(2))
    accounting_.hear(kA, {}, at(now));
  for (Nanos now = milliseconds(402); now <= milliseconds(700); now += milliseconds(2))
    accounting_.hear(kA, {.launches = 1, .waits = true}, at(now));
  consume(milliseconds(400));
  EXPECT_EQ(used(), Nanos{});
  consume(milliseconds(700));
  EXPECT_GE(used(), milliseconds(290));
}

TEST_F(StartTest, WhatItSaidLongAgoSaysNothing) {
  start({}, kA);
  steps({}, milliseconds(100), nothing);
  consume(milliseconds(100));
  accounting_.take_charge(kA);
  consume(seconds(2));
  EXPECT_GE(used(), milliseconds(1500));
}

TEST_F(StartTest, WhereThereAreNoSamplesItIsNotBelievedForLong) {
  start({}, kA);
  steps({}, LoneContext::kUnsampled, nothing);
  EXPECT_LE(used(), milliseconds(2));
  steps(LoneContext::kUnsampled, LoneContext::kUnsampled + seconds(1), nothing);
  EXPECT_GE(used(), milliseconds(990));
}

// Of the 48 programs that started on an H200 the last one had begun after 15 s. Others make their
// contexts meanwhile, so that it is never alone for as long as a sample needs to be believed.
TEST_F(StartTest, ALongStartIsNoUseWhileTheSamplesAgree) {
  for (Nanos second{}; second < seconds(40); second += seconds(1)) {
    for (Nanos turn = second; turn < second + seconds(1); turn += milliseconds(50)) {
      start(turn, kA);
      stop(turn + milliseconds(40), kA);
      start(turn + milliseconds(40), kB);
      stop(turn + milliseconds(50), kB);
      steps(turn, turn + milliseconds(50), nothing);
    }
    if (second > seconds(1) && second < seconds(20)) {
      EXPECT_TRUE(accounting_.needs_samples());
    }
    accounting_.sample({}, at(second + seconds(1)));
    if (second + seconds(1) == seconds(20)) {
      EXPECT_LE(used(), milliseconds(100));
    }
    if (second + seconds(1) == LoneContext::kYoung) accounting_.take_charge(kA);
  }
  EXPECT_FALSE(accounting_.is_young(kA, at(LoneContext::kYoung)));
  EXPECT_GE(used(), seconds(7)) << "it is no start any more";
}

// What a forger has had in its first seconds is charged when the driver's samples come.
TEST_F(StartTest, ASampleThatContradictsItsWordIsBelieved) {
  const std::vector<Utilisation> busy{{kA, 0, 0.98}};
  start({}, kA);
  steps({}, milliseconds(2600), nothing);
  EXPECT_EQ(used(), Nanos{});
  accounting_.sample(busy, at(milliseconds(2600)));
  steps(milliseconds(2600), seconds(3), nothing);
  EXPECT_EQ(used(), seconds(3));
  EXPECT_EQ(accounting_.use(kA, at(seconds(3))).total, seconds(3));
}

TEST_F(StartTest, ASampleOfAStartThatHasGoneToWorkContradictsNothing) {
  const std::vector<Utilisation> busy{{kA, 0, 0.6}};
  start({}, kA);
  steps({}, seconds(2), nothing);
  steps(seconds(2), milliseconds(2600), [](Nanos now) {
    return LoneContext::Word{.launches = static_cast<uint64_t>(now.count()), .waits = true};
  });
  EXPECT_EQ(used(), milliseconds(600));
  accounting_.sample(busy, at(milliseconds(2600)));
  EXPECT_EQ(used(), Nanos{});
}

TEST_F(StartTest, WhatIsFrozenUsesNothingAndWhatItRestedBeforeIsKept) {
  start({}, kA);
  steps({}, milliseconds(2), nothing);
  accounting_.set_frozen(kA, true, at(milliseconds(2)));
  steps(milliseconds(2), milliseconds(50), nothing);
  accounting_.set_frozen(kA, false, at(milliseconds(50)));
  steps(milliseconds(50), milliseconds(60), nothing);
  const Accounting::Charge charge = accounting_.take_charge(kA);
  EXPECT_EQ(charge.used + charge.excused, milliseconds(12));
  EXPECT_LE(charge.used, milliseconds(2));
}

TEST(CapTrust, BelievesASecondOfTheCapAtFirstAndATwentiethOfItLater) {
  CapTrust trust;
  EXPECT_EQ(trust.doubted(milliseconds(60), 0.1, at({})), Nanos{});
  EXPECT_EQ(trust.doubted(milliseconds(60), 0.1, at({})), milliseconds(20));
  EXPECT_EQ(trust.doubted(milliseconds(60), 0.1, at(seconds(2))), milliseconds(50));
  EXPECT_EQ(trust.doubted(seconds(1), 0.1, at(seconds(1000))), milliseconds(900))
      << "it is never more than at first";
}

// Whatever is said, and whenever.
TEST(CapTrust, AddsNoMoreThanATenthToACapOverTwentySeconds) {
  std::minstd_rand random(7);
  for (const double cap : {0.01, 0.1, 0.5, 0.9}) {
    CapTrust trust;
    Nanos believed{};
    for (Nanos now{}; now < seconds(20); now += milliseconds(2)) {
      const Nanos said = milliseconds(random() % 4);
      believed += said - trust.doubted(said, cap, at(now));
    }
    EXPECT_LE(believed, std::chrono::duration_cast<Nanos>(seconds(20) * cap * 0.1)) << cap;
  }
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

TEST_F(AccountingTest, AfterALossWithoutARecordNobodyIsChargedUntilTheNext) {
  start({}, kA);
  consume(milliseconds(10));
  accounting_.take_charge(kA);
  consume(milliseconds(60), /*lost=*/2);
  EXPECT_EQ(accounting_.take_charge(kA).used, Nanos{});
  EXPECT_EQ(accounting_.unattributed(), milliseconds(50));
}

// It may be resident without a record only if it was there before the log was read.
TEST_F(AccountingTest, WhoHasNeverComeOnAfterAnotherWentOffIsNotResident) {
  accounting_.remove(kB);
  start({}, 999);
  stop(milliseconds(1), 999);
  consume(seconds(1));
  EXPECT_EQ(accounting_.take_charge(kA).used, Nanos{});
}

TEST_F(AccountingTest, WhoIsNotTheOneThatTheLogNamesIsNotResident) {
  accounting_.remove(kB);
  start({}, 999);
  consume(seconds(1));
  EXPECT_EQ(accounting_.take_charge(kA).used, Nanos{});
}

TEST_F(AccountingTest, NobodyIsResidentBeforeItCame) {
  accounting_.remove(kA);
  accounting_.remove(kB);
  accounting_.add(30, at(milliseconds(950)));
  consume(milliseconds(950));
  EXPECT_EQ(accounting_.take_charge(30).used, Nanos{});
  consume(seconds(2));
  EXPECT_GT(accounting_.take_charge(30).used, milliseconds(900)) << "it is alone";
}

TEST_F(AccountingTest, AFreezeAtTheInstantOfASuccessionIsOfTheEarlierBearer) {
  accounting_.set_frozen(kA, true, at(milliseconds(5)));
  accounting_.succeed(kA, at(milliseconds(5)), at(milliseconds(8)));
  start(milliseconds(6), kA);
  consume(milliseconds(16));
  EXPECT_EQ(accounting_.take_charge(kA).used, milliseconds(10));
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
