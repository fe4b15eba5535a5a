// SPDX-License-Identifier: Apache-2.0
// What a process is charged for while it is alone on its GPU, where the switch log says nothing.
#include <gtest/gtest.h>

#include "tests/sched/account/accounting_rig.h"

namespace gpushare {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

class LoneTest : public test::AccountingTest {
 protected:
  // What it was taken to have used since the last call.
  Nanos used() { return take().gross(); }
  // And since the beginning, less what was returned.
  Nanos total() {
    take();
    return sum_.net();
  }
  Accounting::Charge take() {
    const Accounting::Charge charge = accounting_.take_charge(kA);
    sum_.add(charge);
    return charge;
  }

  // What caps are charged.
  static Nanos of_caps(const Accounting::Charge& charge) {
    return charge.net() + charge.excused + charge.doubt.bounded();
  }

  Accounting::Charge sum_{};
};

TEST_F(LoneTest, ItsUseIsWhatTheDriverSamples) {
  start({}, kA);
  consume(seconds(1));
  EXPECT_TRUE(accounting_.needs_samples());
  EXPECT_EQ(used(), seconds(1)) << "not known: busy";
  for (int second = 0; second < 8; ++second) {
    consume(seconds(second + 1));
    sample(0.25, seconds(second), seconds(second + 1));
  }
  EXPECT_NEAR(total().count(), 2e9, 1e7);
  EXPECT_NEAR(accounting_.share(kA), 0.25, 0.01);
  EXPECT_TRUE(accounting_.wants_gpu(kA, at(seconds(8))));
  for (int second = 8; second < 10; ++second) {
    consume(seconds(second + 1));
    sample(0, seconds(second), seconds(second + 1));
  }
  EXPECT_FALSE(accounting_.wants_gpu(kA, at(seconds(10))));
  used();
  consume(seconds(11));
  EXPECT_EQ(used(), Nanos{});
}

// What it is charged is the sum of what was sampled, whatever it does.
TEST_F(LoneTest, InBurstsItIsChargedForWhatItDid) {
  start({}, kA);
  Nanos done{}, told{};
  for (int tick = 0; tick < 300; ++tick) {
    const double busy = tick % 31 < 5 || tick % 17 == 3 ? 1 : tick % 7 == 2 ? 0.4 : 0;
    const Nanos from = milliseconds(200) * tick;
    for (Nanos now = from; now < from + milliseconds(200); now += milliseconds(20)) {
      consume(now + milliseconds(20));
      EXPECT_GE(take().used, Nanos{});
    }
    sample(busy, from, from + milliseconds(200));
    done += Nanos(static_cast<int64_t>(busy * 200e6));
    EXPECT_NEAR(total().count(), done.count(), 3e6) << tick;
    EXPECT_GE(accounting_.use(kA, at({})).total, told) << "what is told only rises";
    told = accounting_.use(kA, at({})).total;
  }
  EXPECT_EQ(told, total());
  EXPECT_GT(done, seconds(10));
}

TEST_F(LoneTest, WhatSamplesSayOfTheLastSecondIsItsShare) {
  start({}, kA);
  consume(seconds(2));
  for (int tick = 0; tick < 10; ++tick)
    sample(0.5, milliseconds(200) * tick, milliseconds(200) * (tick + 1));
  consume(milliseconds(2100));
  EXPECT_NEAR(accounting_.share(kA), 0.5, 0.06);
}

// The log says what it had beside another one; of what is sampled, the rest was alone.
TEST_F(LoneTest, WhatTheLogAccountsForIsTakenOffWhatIsSampled) {
  accounting_.set_slice(kB, milliseconds(3));
  alternate({}, milliseconds(100));
  start(milliseconds(100), kA);
  consume(milliseconds(400));
  EXPECT_EQ(used(), milliseconds(325)) << "25 ms beside B, and 300 ms taken for use";
  // Of 400 ms it worked for 165: 25 beside B, and 140.
  accounting_.sample({.from = at({}),
                      .until = at(milliseconds(400)),
                      .busy = 0.6,
                      .of = {{kA, 0.4125}, {kB, 0.1875}}},
                     at(milliseconds(400)));
  consume(seconds(1));
  sample(0, milliseconds(400), seconds(1));
  consume(seconds(2));
  sample(0, seconds(1), seconds(2));
  EXPECT_NEAR(total().count(), 165e6, 1e6) << "what was too much is given back";
  for (int second = 2; second < 4; ++second) {
    consume(seconds(second + 1));
    sample(0.5, seconds(second), seconds(second + 1));
  }
  EXPECT_NEAR(total().count(), 1165e6, 2e6);
}

// The driver gives each of its looks to one of those that share the GPU: what the log accounts for
// is theirs, and the rest was alone.
TEST_F(LoneTest, WhomTheDriverSawIsNotAskedForOfThoseThatShare) {
  for (const pid_t seen : {kA, kB}) {
    Accounting accounting(/*has_log=*/true);
    accounting.add(kA, at({}));
    accounting.add(kB, at({}));
    accounting.consume({{}, 0, at({})});
    SwitchBatch batch;
    for (Nanos turn{}; turn < milliseconds(200); turn += milliseconds(4)) {
      batch.records.push_back({at(turn), 0, kA, 0, true});
      batch.records.push_back({at(turn + milliseconds(2)), 0, kA, 0, false});
      batch.records.push_back({at(turn + milliseconds(2)), 0, kB, 0, true});
      batch.records.push_back({at(turn + milliseconds(4)), 0, kB, 0, false});
    }
    batch.records.push_back({at(milliseconds(200)), 0, kA, 0, true});
    batch.complete_until = at(seconds(2));
    accounting.consume(batch);
    EXPECT_EQ(accounting.take_charge(kA).gross(), milliseconds(1900));
    // A worked for 600 of the last 1,800 ms; the first 200 were seen as A's, or as B's.
    UtilisationSample sample{.from = at({}), .until = at(milliseconds(1000)), .busy = 0.5};
    sample.of = {{seen, 0.2}, {kA, 0.3}};
    accounting.sample(sample, at(seconds(2)));
    sample = {
        .from = at(milliseconds(1000)), .until = at(seconds(2)), .busy = 0.3, .of = {{kA, 0.3}}};
    accounting.sample(sample, at(seconds(2)));
    accounting.consume({{}, 0, at(seconds(2))});
    for (int second = 2; second < 6; ++second) {
      accounting.consume({{}, 0, at(seconds(second + 1))});
      accounting.sample({.from = at(seconds(second)),
                         .until = at(seconds(second + 1)),
                         .busy = 1,
                         .of = {{kA, 1}}},
                        at(seconds(second + 1)));
    }
    // 100 beside B, 300 of the first second and 300 of the next, and 4 s.
    EXPECT_NEAR(static_cast<double>(accounting.use(kA, at({})).total.count()), 4700e6, 1e6) << seen;
  }
}

// While programs start the log may be read a second late.
TEST_F(LoneTest, ASampleWaitsForTheLogOfItsTime) {
  start({}, kA);
  consume(milliseconds(100));
  sample(0.1, {}, seconds(1));
  EXPECT_EQ(total(), milliseconds(100));
  consume(seconds(1));
  consume(milliseconds(1001));
  sample(0.1, seconds(1), seconds(2));
  for (int second = 2; second < 20; ++second) {
    consume(seconds(second));
    sample(0.1, seconds(second), seconds(second + 1));
  }
  consume(seconds(20));
  EXPECT_NEAR(total().count(), 2e9, 1e8);
}

TEST_F(LoneTest, ASampleThatDoesNotTellHowBusyTheGpuWasSaysNothing) {
  start({}, kA);
  consume(seconds(1));
  accounting_.sample({.from = at({}), .until = at(seconds(1)), .of = {}}, at(seconds(1)));
  EXPECT_EQ(used(), seconds(1));
  consume(seconds(2));
  EXPECT_EQ(used(), seconds(1)) << "it is not known either from then on";
}

// One that works for a while each time, and ends before it is sampled.
TEST_F(LoneTest, WhatNoSampleHasToldOfWhenItIsClosedIsUse) {
  start({}, kA);
  consume(seconds(3));
  sample(0, {}, seconds(1));
  sample(0, seconds(1), seconds(2));
  sample(0, seconds(2), seconds(3));
  EXPECT_EQ(total(), milliseconds(2) + microseconds(298)) << "so long others may have waited";
  consume(milliseconds(3400));
  EXPECT_EQ(used(), Nanos{}) << "by the newest sample it does nothing";
  accounting_.end(kA, at(milliseconds(3400)));
  EXPECT_FALSE(accounting_.is_told(kA));
  EXPECT_EQ(accounting_.close(kA).gross(), milliseconds(400));
}

// The driver does not list it any more, but knows how busy the GPU was. It names B, which the GPU
// holds then, and which was seen to rest before.
TEST_F(LoneTest, ASampleTellsOfOneThatHasEnded) {
  start({}, kB);
  consume(seconds(1));
  accounting_.sample({.from = at({}), .until = at(seconds(1)), .busy = 0, .of = {{kB, 0}}},
                     at(seconds(1)));
  EXPECT_LE(accounting_.take_charge(kB).net(), milliseconds(3));
  for (const bool has_worked : {true, false}) {
    const Nanos from = seconds(has_worked ? 1 : 2);
    accounting_.add(kA, at(from));
    start(from, kA);
    stop(from + milliseconds(50), kA);
    start(from + milliseconds(50), kB);
    consume(from + milliseconds(100));
    accounting_.end(kA, at(from + milliseconds(50)));
    EXPECT_FALSE(accounting_.is_told(kA));
    EXPECT_EQ(accounting_.take_charge(kA).gross(), milliseconds(50));
    consume(from + milliseconds(200));
    accounting_.sample({.from = at(from),
                        .until = at(from + milliseconds(200)),
                        .busy = has_worked ? 0.25 : 0.01,
                        .of = {{kB, has_worked ? 0.25 : 0.01}}},
                       at(from + milliseconds(200)));
    EXPECT_TRUE(accounting_.is_told(kA));
    const Accounting::Charge last = accounting_.close(kA);
    const Nanos slice = milliseconds(2) + microseconds(298);
    EXPECT_NEAR(last.net().count(), has_worked ? 0 : -47.7e6, 2.5e6);
    EXPECT_LE(accounting_.take_charge(kB).net(), slice + milliseconds(1)) << "it did nothing";
  }
}

TEST_F(LoneTest, OfAFrozenProcessLessIsSampledThanItDid) {
  start({}, kA);
  for (int i = 0; i < 60; ++i) {
    accounting_.set_frozen(kA, true, at(milliseconds(100 * i + 30)));
    accounting_.set_frozen(kA, false, at(milliseconds(100 * i + 100)));
  }
  // 28 % of the time, of the 30 % it was let run: saturating.
  for (int tick = 0; tick < 30; ++tick) {
    consume(milliseconds(200) * (tick + 1));
    sample(0.28, milliseconds(200) * tick, milliseconds(200) * (tick + 1));
  }
  EXPECT_NEAR(total().count(), 1800e6, 1e6);
}

// B works until it is frozen, and A has the GPU then and rests. When A was away, B was seen to
// work.
TEST_F(LoneTest, WhoHoldsTheGpuAfterAnotherOneHasNotDoneItsWork) {
  Nanos of_a{}, of_b{};
  for (int span = 0; span < 100; ++span) {
    const Nanos from = milliseconds(200) * span, frozen = from + milliseconds(90);
    const bool is_a_away = span % 20 == 0;
    accounting_.set_frozen(kB, false, at(from));
    accounting_.set_frozen(kB, true, at(frozen));
    start(from, kB);
    stop(frozen, kB);
    if (!is_a_away) start(frozen, kA);
    consume(from + milliseconds(200));
    if (!is_a_away) stop(from + milliseconds(200), kA);
    accounting_.sample({.from = at(from),
                        .until = at(from + milliseconds(200)),
                        .busy = 0.455,
                        .of = {{kA, is_a_away ? 0 : 0.455}}},
                       at(from + milliseconds(200)));
    for (const auto& [pid, sum] : {std::pair(kA, &of_a), std::pair(kB, &of_b)}) {
      *sum += of_caps(accounting_.take_charge(pid));
    }
  }
  EXPECT_NEAR(of_b.count(), 9e9, 1e8);
  EXPECT_LE(of_a, 100 * milliseconds(4)) << "its slice, and half a percent";
}

TEST_F(LoneTest, AnOldSampleIsForgotten) {
  start({}, kA);
  consume(seconds(1));
  sample(0, {}, seconds(1));
  consume(seconds(3));
  used();
  consume(seconds(10));
  used();
  consume(seconds(11));
  EXPECT_EQ(used(), seconds(1));
}

// Of a process with the shim, in its first seconds.
class StartTest : public LoneTest {
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
};

TEST_F(StartTest, WhatIsResidentAndSaysThatItHasLaunchedNothingUsesNothing) {
  start({}, kA);
  steps({}, seconds(1), nothing);
  EXPECT_FALSE(accounting_.wants_gpu(kA, at(seconds(1))));
  const Accounting::Charge charge = accounting_.take_charge(kA);
  EXPECT_EQ(charge.net(), Nanos{});
  EXPECT_EQ(accounting_.share(kA), 0);
  EXPECT_EQ(accounting_.busy(), 0);
  EXPECT_EQ(total(), Nanos{});
}

TEST_F(StartTest, WithoutTheShimItIsUseUntilItIsSampled) {
  start({}, kA);
  consume(seconds(1));
  EXPECT_EQ(used(), seconds(1));
  sample(0, {}, seconds(1));
  alternate(seconds(1), seconds(5));
  EXPECT_NEAR(total().count(), 1e9, 3e6) << "a quarter of the next four seconds";
}

// Whether it was at work nobody knows any more.
TEST_F(StartTest, AtItsEndItsWordCountsForAllButCaps) {
  start({}, kA);
  steps({}, milliseconds(300), nothing);
  accounting_.end(kA, at(milliseconds(300)));
  const Accounting::Charge charge = accounting_.close(kA);
  EXPECT_EQ(charge.gross(), Nanos{});
  EXPECT_EQ(charge.excused, milliseconds(300));
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
    EXPECT_GE(charge.net(), 24 * slice);
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
// contexts meanwhile.
TEST_F(StartTest, ALongStartIsNoUse) {
  for (Nanos second{}; second < seconds(40); second += seconds(1)) {
    for (Nanos turn = second; turn < second + seconds(1); turn += milliseconds(50)) {
      start(turn, kA);
      stop(turn + milliseconds(40), kA);
      start(turn + milliseconds(40), kB);
      stop(turn + milliseconds(50), kB);
      steps(turn, turn + milliseconds(50), nothing);
    }
    if (second < seconds(20)) EXPECT_TRUE(accounting_.needs_samples());
    sample(0, second, second + seconds(1));
    if (second + seconds(1) == seconds(20)) {
      EXPECT_LE(used(), milliseconds(100));
    }
  }
  EXPECT_FALSE(accounting_.is_young(kA, at(LoneContext::kYoung)));
  EXPECT_LE(total(), seconds(1)) << "nor is it later, when its word counts no more";
}

// What a forger has had is charged when the driver's samples come.
TEST_F(StartTest, ASampleThatContradictsItsWordIsBelieved) {
  start({}, kA);
  steps({}, milliseconds(600), nothing);
  EXPECT_EQ(used(), Nanos{});
  sample(0.98, {}, milliseconds(600));
  EXPECT_EQ(used(), milliseconds(600));
  steps(milliseconds(600), seconds(1), nothing);
  EXPECT_EQ(used(), milliseconds(400)) << "its word counts no more";
  EXPECT_EQ(total(), seconds(1));
}

// One that says nothing works alone for 100 ms, and rests while a neighbour, which does nothing,
// has the GPU for as long: who of them worked no sample tells, so that its caps count it. The
// sample names the one that the GPU holds at its end.
TEST_F(StartTest, ALiarDoesNotHideBehindAnIdleNeighbour) {
  Nanos worked{}, counted{};
  for (Nanos from{}; from < seconds(20); from += milliseconds(200)) {
    start(from, kA);
    steps(from, from + milliseconds(100), nothing);
    start(from + milliseconds(100), kB);
    steps(from + milliseconds(100), from + milliseconds(200), nothing);
    accounting_.sample(
        {.from = at(from), .until = at(from + milliseconds(200)), .busy = 0.5, .of = {{kB, 0.5}}},
        at(from + milliseconds(200)));
    worked += milliseconds(100);
    counted += of_caps(accounting_.take_charge(kA));
  }
  EXPECT_GE(counted, worked * 95 / 100);
}

TEST_F(StartTest, ASampleOfAStartThatHasGoneToWorkContradictsNothing) {
  start({}, kA);
  steps({}, milliseconds(400), nothing);
  steps(milliseconds(400), milliseconds(1000), [](Nanos now) {
    return LoneContext::Word{.launches = static_cast<uint64_t>(now.count()), .waits = true};
  });
  EXPECT_EQ(used(), milliseconds(600));
  sample(0.6, {}, milliseconds(1000));
  EXPECT_EQ(used(), Nanos{});
  steps(milliseconds(1000), milliseconds(1200),
        [](Nanos) { return LoneContext::Word{.launches = 1'000'000'000, .waits = false}; });
  EXPECT_LE(used(), LoneContext::kRest + milliseconds(2)) << "its word still counts";
}

TEST_F(StartTest, WhatIsFrozenUsesNothingAndWhatItRestedBeforeIsKept) {
  start({}, kA);
  steps({}, milliseconds(2), nothing);
  accounting_.set_frozen(kA, true, at(milliseconds(2)));
  steps(milliseconds(2), milliseconds(50), nothing);
  accounting_.set_frozen(kA, false, at(milliseconds(50)));
  steps(milliseconds(50), milliseconds(60), nothing);
  EXPECT_LE(used(), milliseconds(2));
  accounting_.end(kA, at(milliseconds(60)));
  EXPECT_GE(accounting_.close(kA).excused, milliseconds(10));
}

}  // namespace
}  // namespace gpushare
