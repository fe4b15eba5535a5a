// SPDX-License-Identifier: Apache-2.0
// The parts of the orders: what is left of a job, how long jobs are here, and where a job is
// placed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "sched/orders/left.h"
#include "sched/orders/length_history.h"
#include "sched/orders/place.h"
#include "sched/orders/times.h"
#include "tests/sched/orders/jobs.h"

namespace gpushare {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// --- what is left

struct LeftRow {
  const char* what;
  KnownLength known;
  Left left;
};

TEST(Left, IsTheMostCertainThatIsKnown) {
  const LeftRow rows[] = {
      {"nothing", {.service = 5s}, {}},
      {"iterations", {.iterations = 10, .ended = 4, .period = 2s}, {12s, LeftSource::kAnnounced}},
      {"iterations go before a length",
       {.iterations = 10, .ended = 4, .period = 2s, .length = 1h, .learnt = 1min},
       {12s, LeftSource::kAnnounced}},
      {"iterations of unknown period", {.iterations = 10, .length = 1h}, {1h, LeftSource::kSaid}},
      {"a length goes before what was learnt",
       {.length = 60s, .learnt = 1h, .service = 20s},
       {40s, LeftSource::kSaid}},
      {"learnt", {.learnt = 60s, .service = 20s}, {40s, LeftSource::kLearnt}},
  };
  for (const LeftRow& row : rows) EXPECT_EQ(left_of(row.known), row.left) << row.what;
}

TEST(Left, WhoExceedsWhatWasSaidOfItIsUnknownFromThenOn) {
  EXPECT_EQ(left_of({.length = Nanos(1'000), .learnt = 2h, .service = 1h}), Left{});
  EXPECT_EQ(left_of({.iterations = 1, .ended = 1, .period = 1s, .length = 2h}), Left{});
  EXPECT_EQ(left_of({.learnt = 10s, .service = 11s}), Left{});
}

// It announces one iteration more whenever one has ended, or goes on with one for ever.
TEST(Left, WhoGoesOnBeyondWhatItAnnouncedIsUnknown) {
  const auto after = [](Nanos promised, Nanos beyond) {
    return left_of({.iterations = 1001,
                    .ended = 1000,
                    .period = 10ms,
                    .promised = promised,
                    .beyond = beyond});
  };
  EXPECT_EQ(after(10s, 4999ms), (Left{10ms, LeftSource::kAnnounced}));
  EXPECT_EQ(after(10s, 5s), Left{});
  EXPECT_EQ(after(10ms, 1999ms), (Left{10ms, LeftSource::kAnnounced})) << "that is no time yet";
  EXPECT_EQ(after(10ms, 2s), Left{});
}

TEST(Left, OneIterationThatGoesOnAndOnIsNoneOfThose) {
  const auto after = [](Nanos since_end) {
    return left_of(
        {.iterations = 1, .period = 100ms, .since_end = since_end, .service = since_end});
  };
  EXPECT_EQ(after(2400ms), (Left{100ms, LeftSource::kAnnounced}));
  EXPECT_EQ(after(2500ms), Left{});
}

// Its service includes what its hand-overs have cost.
TEST(Left, WhoIsALittleOverAnExactWordIsAboutToEnd) {
  for (const Nanos service : {Nanos(30s), Nanos(32'999ms)}) {
    EXPECT_EQ(left_of({.length = 30s, .service = service}), (Left{0s, LeftSource::kSaid}));
    EXPECT_EQ(left_of({.learnt = 30s, .service = service}), (Left{0s, LeftSource::kLearnt}));
  }
}

// A program that makes its context has received up to seconds before it has done any of what its
// length was said of.
TEST(Left, AShortJobMayHaveStartedAsWell) {
  EXPECT_EQ(left_of({.length = 300ms, .service = 2299ms}), (Left{0s, LeftSource::kSaid}));
  EXPECT_EQ(left_of({.length = 300ms, .service = 2300ms}), Left{});
  EXPECT_EQ(left_of({.learnt = 300ms, .service = 399ms}), (Left{0s, LeftSource::kLearnt}));
  EXPECT_EQ(left_of({.learnt = 300ms, .service = 400ms}), Left{});
}

// Otherwise one whose start took long seems to be shorter than it is, and goes before shorter ones.
TEST(Left, AStartIsNoPartOfALength) {
  EXPECT_EQ(left_of({.length = 3s, .service = 1900ms, .start = 1900ms}),
            (Left{3s, LeftSource::kSaid}));
  EXPECT_EQ(left_of({.length = 3s, .service = 2900ms, .start = 1900ms}),
            (Left{2s, LeftSource::kSaid}));
  EXPECT_EQ(left_of({.learnt = 5s, .service = 1900ms, .start = 1900ms}),
            (Left{5s, LeftSource::kLearnt}));
  EXPECT_EQ(left_of({.learnt = 300ms, .service = 2299ms, .start = 1900ms}),
            (Left{0s, LeftSource::kLearnt}));
  EXPECT_EQ(left_of({.learnt = 300ms, .service = 2300ms, .start = 1900ms}), Left{});
  EXPECT_EQ(left_of({.length = 3s, .service = 5s, .start = 1900ms}), Left{});
}

TEST(Left, TakesAnyNumbers) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100'000; ++i) {
    const auto any = [&] {
      return static_cast<int64_t>(random() % 4 == 0 ? random() : random() % 1000);
    };
    const Left left = left_of({.iterations = static_cast<uint64_t>(any()),
                               .ended = static_cast<uint64_t>(any()),
                               .period = Nanos(any()),
                               .promised = Nanos(any()),
                               .beyond = Nanos(any()),
                               .since_end = Nanos(any()),
                               .length = Nanos(any()),
                               .learnt = Nanos(any()),
                               .service = Nanos(any()),
                               .start = Nanos(any())});
    EXPECT_EQ(left.time.has_value(), left.source != LeftSource::kUnknown);
    if (left.time) EXPECT_GE(*left.time, 0ns);
  }
}

// --- how long jobs are

TEST(LengthMix, StartsWithImaginedLengthsThatDouble) {
  const LengthMix mix;
  // Run to 7.5 s, of which about half of them are through.
  EXPECT_NEAR(mix.index(0s), 7.5e9 * 511 / 256, 1e7);
  EXPECT_EQ(mix.next_jump(0s), 7500ms);
  EXPECT_EQ(mix.next_jump(7500ms), 15s);
  EXPECT_GT(mix.index(15s), mix.index(0s));
  EXPECT_EQ(mix.next_jump(2h), Nanos::max());
  EXPECT_EQ(mix.index(2h), 7200e9) << "as long again";
}

TEST(LengthMix, FallsUpToTheNextJump) {
  const LengthMix mix;
  for (Nanos age{}; age < 1900s;) {
    const Nanos jump = mix.next_jump(age);
    double before = mix.index(age);
    for (int part = 1; part < 10; ++part) {
      const double now = mix.index(age + (jump - age) * part / 10);
      EXPECT_LE(now, before * (1 + 1e-12));
      before = now;
    }
    age = jump;
  }
}

TEST(LengthMix, JobsOfOneLengthRunToTheirEnd) {
  const LengthMix mix(std::vector<Nanos>(500, 60s));
  EXPECT_NEAR(mix.index(0s) / 1e9, 63, 8);
  for (Nanos age = 1s; age < 60s; age += 1s) EXPECT_LT(mix.index(age), mix.index(0s));
  EXPECT_GT(mix.index(71s), mix.index(0s)) << "it has outlived all of them";
}

TEST(LengthMix, AJobThatHasOutlivedTheShortOnesIsALongOne) {
  std::vector<Nanos> lengths(375, 60s);
  lengths.resize(500, 600s);
  const LengthMix mix(lengths);
  EXPECT_NEAR(mix.index(0s) / 1e9, 80, 15);
  EXPECT_NEAR(mix.index(71s) / 1e9, 530, 60);
}

TEST(LengthHistory, KeepsTheNewest512) {
  LengthHistory history;
  for (int i = 0; i < 600; ++i) history.add(i % 2 == 0 ? "even" : "odd", std::chrono::seconds(i));
  EXPECT_EQ(history.all().size(), LengthHistory::kMost);
  EXPECT_EQ(history.all().front().length, 88s);
  EXPECT_EQ(history.median("even"), 568s) << "of the newest 31, 538 to 598";
  EXPECT_EQ(history.median("odd"), 569s);
  EXPECT_EQ(history.median("none"), std::nullopt);
  EXPECT_EQ(history.median(""), std::nullopt) << "an unknown command is like no other";
}

// Who is killed seems shorter than it is, never longer.
TEST(LengthHistory, RunsThatWereKilledDoNotSpoilTheOthers) {
  LengthHistory history;
  history.add("a", 2s);
  history.add("a", 60s);
  EXPECT_EQ(history.median("a"), 60s);
  for (const Nanos length : {59s, 1s, 61s, 3s}) history.add("a", length);
  EXPECT_EQ(history.median("a"), 59s) << "half of them were killed";
}

TEST(LengthHistory, ACommandThatWasForgottenIsUnknown) {
  LengthHistory history;
  history.add("a", 2s);
  for (size_t i = 0; i < LengthHistory::kMost; ++i) history.add("b", 1s);
  EXPECT_EQ(history.median("a"), std::nullopt);
}

TEST(LengthHistory, ManyJobsOfOneUserDriveOutTheirOwn) {
  LengthHistory history;
  history.add({.command = "a", .length = 2s, .user = 1000});
  for (int i = 0; i < 2000; ++i)
    history.add({.command = std::to_string(i), .length = 1s, .user = 1001});
  EXPECT_EQ(history.median("a"), 2s);
  EXPECT_EQ(history.median("1999"), 1s);
  EXPECT_EQ(history.median("5"), std::nullopt);
  EXPECT_EQ(history.all().size(), LengthHistory::kMost);
}

// Whoever has left a machine leaves it to those who work there today.
TEST(LengthHistory, WhatIsAMonthOldGoesFirst) {
  LengthHistory history;
  for (uint32_t user = 0; user < 64; ++user)
    for (int i = 0; i < 8; ++i) history.add({.command = "old", .length = 1s, .user = user});
  for (int i = 0; i < 512; ++i)
    history.add({.command = "new", .length = 2s, .arrived = 31 * 24h, .user = 1000});
  EXPECT_EQ(history.all().front().command, "new");
  EXPECT_EQ(history.all().size(), LengthHistory::kMost);
}

TEST(LengthHistory, AJobWithoutGpuTimeTeachesNothing) {
  LengthHistory history;
  history.add("a", 0s);
  history.add("a", -1s);
  EXPECT_TRUE(history.all().empty());
}

// --- placement

TEST(Place, GoesWhereItEndsFirst) {
  const PlaceGpu busy{.index = 0, .groups = 16, .free_groups = 16, .waiting = 100e9};
  PlaceGpu narrow{.index = 1, .groups = 16, .free_groups = 4, .waiting = 70e9};
  const PlaceJob job{.length = 60e9, .knee = 8};
  EXPECT_THAT(place(job, std::vector{busy, narrow}).gpus, ElementsAre(0));
  narrow.free_groups = 8;
  const Placement placement = place(job, std::vector{busy, narrow});
  EXPECT_THAT(placement.gpus, ElementsAre(1));
  EXPECT_EQ(placement.reason, "ends there first, in 2 min");
}

TEST(Place, TiesGoToTheLowerIndexInWhateverOrderGpusAreGiven) {
  EXPECT_THAT(place({}, std::vector<PlaceGpu>{{.index = 3}, {.index = 1}, {.index = 2}}).gpus,
              ElementsAre(1));
}

TEST(Place, OnlyWhereItsMemoryFits) {
  const std::vector<PlaceGpu> gpus = {{.index = 0, .free_bytes = 8ULL << 30},
                                      {.index = 1, .free_bytes = 16ULL << 30, .waiting = 1e15}};
  EXPECT_THAT(place({.bytes = 10ULL << 30}, gpus).gpus, ElementsAre(1));
  const Placement none = place({.bytes = 20ULL << 30}, gpus);
  EXPECT_THAT(none.gpus, ElementsAre());
  EXPECT_EQ(none.reason, "memory: needs 20480 MiB on 1 GPU, free on 0");
  EXPECT_FALSE(none.is_impossible);
}

TEST(Place, WhatNoGpuCouldHoldIsNoMatterOfWaiting) {
  const std::vector<PlaceGpu> gpus = {{.index = 0, .free_bytes = 8, .total_bytes = 16},
                                      {.index = 1, .free_bytes = 8, .total_bytes = 32}};
  EXPECT_FALSE(place({.bytes = 32}, gpus).is_impossible);
  EXPECT_TRUE(place({.bytes = 33}, gpus).is_impossible);
  EXPECT_TRUE(place({.bytes = 32, .gpus = 2}, gpus).is_impossible);
  EXPECT_TRUE(place({.gpus = 3}, gpus).is_impossible);
}

TEST(Place, EachThatWaitsHasItsMemoryKeptWhereMostIsFree) {
  const std::vector<PlaceGpu> gpus = {{.index = 0, .free_bytes = 10, .total_bytes = 16},
                                      {.index = 1, .free_bytes = 12, .total_bytes = 16},
                                      {.index = 2, .free_bytes = 12, .total_bytes = 12}};
  const auto kept = [&](const std::vector<PlaceWaiting>& waiting) {
    auto left = gpus;
    reserve(waiting, left);
    std::vector<uint64_t> free;
    for (const PlaceGpu& gpu : left) free.push_back(gpu.free_bytes);
    return free;
  };
  EXPECT_THAT(kept({}), ElementsAre(10, 12, 12));
  EXPECT_THAT(kept({{.bytes = 12}}), ElementsAre(10, 0, 12)) << "ties go to the lower index";
  EXPECT_THAT(kept({{.bytes = 12}, {.bytes = 11}}), ElementsAre(10, 0, 1));
  EXPECT_THAT(kept({{.bytes = 14}, {.bytes = 14}}), ElementsAre(0, 0, 12)) << "the third is small";
  EXPECT_THAT(kept({{.bytes = 4, .gpu = 0}}), ElementsAre(6, 12, 12));
  EXPECT_THAT(kept({{.bytes = 99}, {.bytes = 1, .gpu = 7}}), ElementsAre(10, 12, 12));
}

TEST(Place, AvoidsJobsThatItDoesNotGetOnWith) {
  EXPECT_THAT(place({.length = 100e9}, std::vector<PlaceGpu>{{.index = 0, .unfriendly = 2},
                                                             {.index = 1, .waiting = 90e9}})
                  .gpus,
              ElementsAre(1));
}

TEST(Place, PrefillAndDecodeOfOneTenantAreTogether) {
  EXPECT_THAT(place({}, std::vector<PlaceGpu>{{.index = 0},
                                              {.index = 1, .waiting = 9e9, .has_partner = true}})
                  .gpus,
              ElementsAre(1));
}

TEST(Place, AJobOnSeveralGpusGetsThoseThatAreFreeFirst) {
  const std::vector<PlaceGpu> gpus = {{.index = 0, .waiting = 3e9},
                                      {.index = 1, .waiting = 1e9},
                                      {.index = 2, .waiting = 9e9},
                                      {.index = 3, .waiting = 2e9}};
  EXPECT_THAT(place({.gpus = 2}, gpus).gpus, ElementsAre(1, 3));
  EXPECT_EQ(place({.gpus = 5}, gpus).reason, "needs 5 GPUs, there are 4");
}

TEST(Place, WorkThatWaitsCountsUnknownJobsByTheIndex) {
  const LengthMix mix;
  const std::vector<JobView> jobs = {test::waiting_job(1, Time{}, 10s),
                                     test::waiting_job(2, Time{})};
  EXPECT_EQ(work_waiting(jobs, mix), 10e9 + mix.index(0s));
}

// --- times for people

TEST(RoughText, IsShort) {
  EXPECT_EQ(rough_text(0s), "0.1 s");
  EXPECT_EQ(rough_text(2500ms), "2.5 s");
  EXPECT_EQ(rough_text(38s), "38 s");
  EXPECT_EQ(rough_text(10min), "10 min");
  EXPECT_EQ(rough_text(5h), "5 h");
}

TEST(Elapsed, NeverOverflows) {
  EXPECT_EQ(elapsed(Time::min(), Time::max()), Nanos::max());
  EXPECT_EQ(elapsed(Time::max(), Time::min()), Nanos::min());
  EXPECT_EQ(later(Time::max(), 1s), Time::max());
  EXPECT_EQ(later(Time(1s), 2s), Time(3s));
}

}  // namespace
}  // namespace gpushare
