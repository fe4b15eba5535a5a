// SPDX-License-Identifier: Apache-2.0
// The credit gate launch by launch, and random programs under random credit.
#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <utility>

#include "intercept/shim/calls/credit_calls.h"
#include "tests/intercept/shim/credit/credits_rig.h"
#include "tests/support/sanitized.h"

namespace gpushare::shim {
namespace {

using Kind = Given::Kind;
constexpr uint64_t kLong = 400'000, kShort = 5'000;  // ns

class Credit : public CreditsTest {
 protected:
  const CUstream stream_ = the_gpu->create(false);
};

TEST_F(Credit, HoldsWhatIsInLineAndLetsItGo) {
  for (int i = 0; i < 512; ++i) launch(stream_, kLong);
  close_credit(*slot_);
  EXPECT_EQ(the_gpu->run(), 0u);
  EXPECT_EQ(credit().held, ShimHeld::kOnGpu);
  set_credit(*slot_, 100);
  const size_t first = the_gpu->run();
  EXPECT_GE(first, 100u);
  EXPECT_LE(first, 110u) << "before the length is known no launch is without a wait";
  close_credit(*slot_);
  EXPECT_EQ(the_gpu->run(), 0u);
  open_credit(*slot_);
  the_gpu->run();
  EXPECT_EQ(the_gpu->queue(stream_).next, the_gpu->queue(stream_).given.size());
}

TEST_F(Credit, ALongLaunchHasAWaitEachAndShortOnesShareOne) {
  for (int i = 0; i < 1000; ++i) {
    launch(stream_, kLong);
    the_gpu->run();
  }
  EXPECT_EQ(count(stream_, Kind::kWait), 1000u);
  EXPECT_NEAR(static_cast<double>(credit().launch_ns), kLong, kLong * 0.05);
  const CUstream other = the_gpu->create(true);
  for (int i = 0; i < 20'000; ++i) {
    launch(other, kShort);
    the_gpu->run();
  }
  const double due = 20'000.0 * kShort / Credits::kSpacingNs;
  EXPECT_LT(static_cast<double>(count(other, Kind::kWait)), 1.3 * due + 1000);
  const size_t before = count(other, Kind::kWait);
  for (int i = 0; i < 20'000; ++i) launch(other, kShort);
  EXPECT_NEAR(static_cast<double>(count(other, Kind::kWait) - before), due, 0.1 * due);
}

// The stream stops within the length of what is between two waits.
TEST_F(Credit, WhatRunsOnWithoutMoreCreditIsBounded) {
  for (int i = 0; i < 2000; ++i) {
    launch(stream_, kShort);
    the_gpu->run();
  }
  set_credit(*slot_, credit().issued);
  const uint64_t before = the_gpu->run_ns();
  for (int i = 0; i < 60; ++i) launch(stream_, kShort);
  the_gpu->run();
  EXPECT_LE(the_gpu->run_ns() - before, uint64_t{Credits::kSpacingNs} + kShort);
}

// The last waits have no write behind them, so the GPU alone does not say that they were let
// through.
// A program with long kernels makes few launches, and its first ones may be short ones.
TEST_F(Credit, HowLongLongKernelsTakeIsKnownAfterAFewLaunches) {
  for (int i = 0; i < 3; ++i) {
    launch(stream_, kShort);
    the_gpu->run();
  }
  for (int i = 0; i < 20; ++i) {
    launch(stream_, 20'000'000);
    the_gpu->run();
  }
  EXPECT_GT(credit().launch_ns, 10'000'000u);
}

TEST_F(Credit, WhatTheHostHasSeenToRunWasLetThrough) {
  for (int i = 0; i < 2000 || credit().issued == credit().reached; ++i) {
    launch(stream_, kShort);
    the_gpu->run();
    ASSERT_LT(i, 3000);
  }
  const uint32_t reached = credit().reached;
  EXPECT_EQ(credit().run, 0u) << "what was let through may run still";
  note_run(last_in(the_gpu->create(false)));
  EXPECT_EQ(credit().reached, reached) << "of that stream nothing is known";
  EXPECT_EQ(credit().run, 0u);
  note_run(last_in(stream_));
  EXPECT_EQ(credit().reached, credit().issued);
  EXPECT_EQ(credit().run, credit().issued);
  note_run(reached);
  EXPECT_EQ(credit().reached, credit().issued) << "it does not go back";
  EXPECT_EQ(credit().run, credit().issued);
}

// The one with the lower number stood still between taking it and writing it down.
TEST_F(Credit, TheLastWaitOfAStreamIsThatOfTheThreadWithTheHigherNumber) {
  set_credit(*slot_, 10);
  for (int i = 0; i < 10 + Credits::kMostAhead; ++i) launch(stream_, kLong);
  const uint32_t before = credit().issued;
  bool has_waited = false;
  on_host_wait = [&] {
    if (std::exchange(has_waited, true)) return;
    open_credit(*slot_);
    launch(stream_, kLong);  // as another thread does
  };
  launch(stream_, kLong);
  EXPECT_EQ(credit().issued, before + 2);
  EXPECT_EQ(last_in(stream_), before + 2);
  the_gpu->run();
  note_run(last_in(stream_));
  EXPECT_EQ(credit().run, credit().issued) << "nothing is in line any more";
}

TEST_F(Credit, TheLastWaitOfAStreamIsKnownHoweverLongItHadNone) {
  for (const uint32_t away : {0x7000'0000u, 0x9000'0000u, 0xFFF0'0000u}) {
    start_over();
    const CUstream rare = the_gpu->create(false), never = the_gpu->create(false);
    launch(rare, kLong);
    credit().issued += away;
    open_credit(*slot_);
    launch(rare, kLong);
    EXPECT_EQ(last_in(rare), away + 2);
    launch(never, kLong);
    EXPECT_EQ(last_in(never), away + 3);
  }
}

// Each thread says what it has seen, and what it has said stays.
TEST_F(Credit, WhatOneThreadHasSeenToRunNoOtherTakesBack) {
  constexpr uint32_t kNumbers = GS_IS_SANITIZED ? 100'000 : 1'000'000;
  Credits& all = credits();
  credit().issued = kNumbers + 1;  // one is still in line
  std::atomic<uint32_t> next{1}, taken_back{0};
  const auto see = [&] {
    for (uint32_t number = next++; number <= kNumbers; number = next++) {
      all.note_run(*slot_, number);
      taken_back += credit_lacking(credit().run, number) > 0 ? 1 : 0;
      taken_back += credit_lacking(credit().reached, number) > 0 ? 1 : 0;
    }
  };
  {
    const std::jthread one(see), two(see), three(see);
  }
  EXPECT_EQ(taken_back, 0u);
  EXPECT_EQ(credit().run, kNumbers);
}

TEST_F(Credit, TheAgentIsWokenWhenWorkComesAfterARestAndWhenAllHasRun) {
  const int at_first = wakes;
  launch(stream_, 3'000'000, true);
  EXPECT_EQ(wakes, at_first + 1) << "from now on it takes turns with others";
  the_gpu->run();
  note_run(last_in(stream_));
  credit().tells = 1;
  const int before = wakes;
  launch(stream_, 3'000'000, true);
  EXPECT_EQ(wakes, before + 1);
  launch(stream_, 3'000'000, true);
  EXPECT_EQ(wakes, before + 1) << "it is at work already";
  the_gpu->run();
  note_run(last_in(stream_));
  EXPECT_EQ(wakes, before + 2);
  launch(stream_, 3'000'000, true);
  EXPECT_EQ(wakes, before + 2) << "so soon nobody would hear it";
  the_gpu->run();
  note_run(last_in(stream_));
  EXPECT_EQ(wakes, before + 2);
  now_ns += 10'000'000;
  credit().tells = 0;
  launch(stream_, 3'000'000, true);
  EXPECT_EQ(wakes, before + 2) << "nobody gives way to it";
}

// A burst of 300 us every 5 ms: where the wait of one left enough for the next, that stood behind
// kernels of a lower priority, and its 99th percentile was 3 ms (H100).
TEST_F(Credit, ShortWorkAfterARestIsToldWhateverTheLastWaitLeft) {
  const auto end = [&] {
    the_gpu->run();
    note_run(last_in(stream_));
    now_ns += 5'000'000;
  };
  for (int i = 0; i < 1000; ++i) {
    launch(stream_, kShort);
    the_gpu->run();
  }
  end();
  const size_t waits_without = count(stream_, Kind::kWait);
  for (int burst = 0; burst < 20; ++burst) {
    launch(stream_, kShort);
    end();
  }
  EXPECT_LT(count(stream_, Kind::kWait), waits_without + 10) << "nobody gives way to it";
  credit().tells = 1;
  for (int burst = 0; burst < 20; ++burst) {
    const int before = wakes;
    launch(stream_, kShort);
    EXPECT_EQ(wakes, before + 1) << burst;
    launch(stream_, kShort);
    EXPECT_EQ(wakes, before + 1) << burst;
    end();
    EXPECT_EQ(wakes, before + 2) << burst;
  }
}

TEST_F(Credit, AGraphIsHeldAsAWhole) {
  launch(stream_, 3'000'000, true);
  launch(stream_, 3'000'000, true);
  EXPECT_EQ(count(stream_, Kind::kWait), 2u);
}

TEST_F(Credit, WhatCapturesGetsNoWait) {
  the_gpu->queue(stream_).is_capturing = true;
  for (int i = 0; i < 100; ++i) launch(stream_, kLong);
  EXPECT_TRUE(the_gpu->queue(stream_).given.empty());
  EXPECT_EQ(credit().issued, 0u);
}

TEST_F(Credit, TheWordMayComeAround) {
  credit().issued = 0xFFFFFFF0;
  open_credit(*slot_);
  for (int i = 0; i < 40; ++i) launch(stream_, kLong);
  EXPECT_EQ(credit().issued, 24u);
  set_credit(*slot_, 0xFFFFFFF8);
  EXPECT_EQ(the_gpu->run(), 8u);
  set_credit(*slot_, 4);
  EXPECT_EQ(the_gpu->run(), 12u);
  close_credit(*slot_);
  EXPECT_EQ(the_gpu->run(), 0u);
  open_credit(*slot_);
  EXPECT_EQ(the_gpu->run(), 20u);
}

TEST_F(Credit, AnOpenWordIsSetAnewBeforeItIsUsedUp) {
  EXPECT_FALSE(is_credit_stale(*slot_));
  credit().issued += kCreditStale;
  EXPECT_FALSE(is_credit_stale(*slot_));
  credit().issued += 1;
  EXPECT_TRUE(is_credit_stale(*slot_));
  open_credit(*slot_);
  EXPECT_FALSE(is_credit_stale(*slot_));
}

TEST_F(Credit, OnlySoManyWaitsAreInLineBeyondWhatIsLetThrough) {
  set_credit(*slot_, 10);
  int waits = 0;
  on_host_wait = [&] {
    ++waits;
    set_credit(*slot_, credit().word + 1);
  };
  for (int i = 0; i < 200; ++i) {
    launch(stream_, kLong);
    EXPECT_LE(credit_lacking(credit().word, credit().issued), Credits::kMostAhead);
  }
  EXPECT_EQ(waits, 200 - 10 - Credits::kMostAhead);
}

class BoundedCredit : public Credit {
 protected:
  BoundedCredit() {
    credit().most_ahead_us = 4000;
    on_host_wait = [this] {
      ++waits_;
      the_gpu->run(1);
    };
  }
  // Work that is in line and has not begun.
  uint64_t ahead_ns(CUstream stream) const {
    const FakeGpu::Queue& queue = the_gpu->queue(stream);
    uint64_t sum = 0;
    for (size_t i = queue.next; i < queue.given.size(); ++i) sum += queue.given[i].cost_ns;
    return sum;
  }
  // The program knows how long its launches are.
  void warm_up(CUstream stream, uint64_t cost_ns) {
    for (int i = 0; i < 5000; ++i) {
      launch(stream, cost_ns);
      the_gpu->run();
    }
    waits_ = 0;
  }
  int waits_ = 0;
};

TEST_F(BoundedCredit, OnlySoMuchWorkIsInLine) {
  for (const uint64_t cost_ns : {20'000, 400'000, 2'000'000, 50'000'000}) {
    warm_up(stream_, cost_ns);
    const uint64_t due = std::max<uint64_t>(4'000'000, cost_ns);
    uint64_t most = 0;
    for (int i = 0; i < 2000; ++i) {
      launch(stream_, cost_ns);
      most = std::max(most, ahead_ns(stream_));
    }
    EXPECT_GE(most, due * 9 / 10) << cost_ns;
    EXPECT_LE(most, due + cost_ns + 1'250'000) << cost_ns << ": the GPU says it once a millisecond";
    EXPECT_GT(waits_, 0);
  }
}

TEST_F(BoundedCredit, EachStreamHasSomethingInLine) {
  std::vector<CUstream> streams;
  for (int i = 0; i < 8; ++i) streams.push_back(the_gpu->create(false));
  warm_up(stream_, 20'000'000);
  for (int round = 0; round < 3; ++round)
    for (const CUstream stream : streams) {
      launch(stream, 20'000'000);
      if (round == 0) EXPECT_EQ(waits_, 0);
    }
  for (const CUstream stream : streams) EXPECT_EQ(count(stream, Kind::kLaunch), 3u);
}

// A kernel may wait for what its own program does next, and natively gets it.
TEST_F(BoundedCredit, IsNoBoundWhereTheGpuDoesNotGetOn) {
  warm_up(stream_, kLong);
  on_host_wait = [this] { ++waits_; };
  for (int i = 0; i < 200; ++i) launch(stream_, kLong);
  const int first = std::exchange(waits_, 0);
  EXPECT_GT(first, 0);
  EXPECT_LE(first * kLong / 4, 4'000'000 + 5 * kLong) << "one patience, once";
  for (int i = 0; i < 200; ++i) launch(stream_, kLong);
  EXPECT_EQ(waits_, 0);
  the_gpu->run(10);
  for (int i = 0; i < 200; ++i) launch(stream_, kLong);
  EXPECT_GT(waits_, 0) << "it gets on again";
}

TEST_F(Credit, NobodyWaitsForADeadAgent) {
  for (int i = 0; i < 10; ++i) launch(stream_, kLong);
  close_credit(*slot_);
  EXPECT_EQ(the_gpu->run(), 0u);
  is_the_agent_alive = false;
  launch(stream_, kLong);
  EXPECT_EQ(the_gpu->run(), 11u);
  EXPECT_EQ(count(stream_, Kind::kWait), 10u);
}

TEST_F(Credit, NobodyWaitsOnTheHostForADeadAgent) {
  set_credit(*slot_, 1);
  on_host_wait = [] { is_the_agent_alive = false; };
  for (int i = 0; i < 200; ++i) launch(stream_, kLong);
  EXPECT_EQ(the_gpu->run(), 200u);
}

// The words of a slot that was replaced have nobody any more who sets them.
TEST_F(Credit, ANewSlotFreesWhatWaitsForTheOld) {
  for (int i = 0; i < 10; ++i) launch(stream_, kLong);
  close_credit(*slot_);
  EXPECT_EQ(the_gpu->run(), 0u);
  const auto next = std::make_unique<ShimSlot>();
  open_credit(*next);
  the_process.slot = next.get();
  launch(stream_, kLong);
  EXPECT_EQ(next->credit.issued, 1u);
  EXPECT_LE(credit_lacking(credit().word, 10), 0);
  the_process.slot = slot_.get();
}

// What the GPU is given for it is of the slot before.
TEST_F(Credit, WhoStoodStillWhenANewSlotCameSaysNothingInIt) {
  const CUstream other = the_gpu->create(false);
  const auto next = std::make_unique<ShimSlot>();
  open_credit(*next);
  set_credit(*slot_, 10);
  for (int i = 0; i < 10 + Credits::kMostAhead; ++i) launch(stream_, kLong);
  bool has_waited = false;
  on_host_wait = [&] {
    if (std::exchange(has_waited, true)) return;
    the_process.slot = next.get();
    launch(other, kLong);  // as another thread does
    the_gpu->run();
  };
  launch(stream_, kLong);
  EXPECT_EQ(next->credit.issued, 1u);
  the_gpu->run();
  EXPECT_EQ(the_gpu->queue(stream_).next, the_gpu->queue(stream_).given.size()) << "never stuck";
  EXPECT_EQ(next->credit.reached, 1u) << "nothing is in line any more";
  EXPECT_EQ(last_in(stream_), 0u);
  launch(stream_, kLong);
  EXPECT_EQ(last_in(stream_), 2u);
  the_process.slot = slot_.get();
}

TEST_F(Credit, WhoFoundTheOldSlotBeforeANewOneCameDoesNotPinItAgain) {
  launch(stream_, kLong);
  const auto next = std::make_unique<ShimSlot>();
  open_credit(*next);
  the_process.slot = next.get();
  launch(stream_, kLong);
  close_credit(*next);
  the_gpu->is_pinned = false;
  EXPECT_FALSE(credits().before_launch(*slot_, {.stream = stream_}));
  EXPECT_FALSE(is_credit_open(*next)) << "its agent lives, and has closed it";
  EXPECT_FALSE(the_gpu->is_pinned);
  EXPECT_EQ(last_in(stream_), 1u);
  the_process.slot = slot_.get();
}

// Its waits are numbered anew. Were a number of the slot before taken for one of them, all that
// comes would count as run already.
TEST_F(Credit, WhatRanInTheOldSlotSaysNothingInTheNew) {
  const CUstream other = the_gpu->create(false);
  for (int i = 0; i < 50; ++i) launch(stream_, kLong);
  const Seen all, one(stream_, Flavor::kLegacy);
  const uint32_t last = last_in(stream_);
  EXPECT_EQ(last, 50u);
  const auto next = std::make_unique<ShimSlot>();
  open_credit(*next);
  the_process.slot = next.get();
  EXPECT_EQ(last_in(stream_), 0u) << "before the first launch";
  launch(other, kLong);
  EXPECT_EQ(next->credit.issued, 1u);
  note_run(last);
  note_run(last_in(stream_));
  EXPECT_EQ(next->credit.run, 0u);
  EXPECT_EQ(next->credit.reached, 0u);
  for (int i = 0; i < 60; ++i) launch(other, kLong);
  for (const Seen& seen : {all, one}) seen.note(CUDA_SUCCESS);
  note_run(last_in(stream_));
  EXPECT_EQ(next->credit.run, 0u) << "a wait that began before says nothing either";
  note_run(last_in(other));
  EXPECT_EQ(next->credit.run, 61u);
  the_process.slot = slot_.get();
}

TEST_F(Credit, ADriverWithoutMemoryOperationsHoldsOnTheHost) {
  has_memory_operations = false;
  launch(stream_, kLong);
  EXPECT_EQ(credit().held, ShimHeld::kNoMemoryOperations);
  start_over();
  const CUstream stream = the_gpu->create(false);
  the_gpu->answer_to_waits = CUDA_ERROR_NOT_SUPPORTED;
  for (int i = 0; i < 3; ++i) launch(stream, kLong);
  EXPECT_EQ(credit().held, ShimHeld::kNoMemoryOperations);
  close_credit(*slot_);
  EXPECT_EQ(the_gpu->run(), 3u) << "the host's gate alone holds";
}

// Nobody would know how far it is.
TEST_F(Credit, AGpuThatCannotSayHowFarItIsHoldsOnTheHost) {
  the_gpu->answer_to_writes = CUDA_ERROR_INVALID_VALUE;
  for (int i = 0; i < 3; ++i) launch(stream_, kLong);
  EXPECT_EQ(credit().held, ShimHeld::kNoMemoryOperations);
  EXPECT_EQ(credit().issued, 1u) << "no further wait is put in line";
}

TEST_F(Credit, NothingWaitsOnTheGpuThatNobodyWatches) {
  can_be_watched = false;
  for (int i = 0; i < 3; ++i) launch(stream_, kLong);
  EXPECT_EQ(credit().held, ShimHeld::kNotWatched);
  close_credit(*slot_);
  EXPECT_EQ(the_gpu->run(), 3u) << "the host's gate alone holds";
}

TEST_F(Credit, ASecondContextHoldsOnTheHost) {
  launch(stream_, kLong);
  the_gpu->current = reinterpret_cast<CUcontext>(uintptr_t{0x600});
  launch(stream_, kLong);
  launch(stream_, kLong);
  EXPECT_EQ(credit().held, ShimHeld::kSeveralContexts);
  EXPECT_EQ(count(stream_, Kind::kWait), 1u);
}

TEST_F(Credit, AContextThatCameAnewIsPinnedAnew) {
  launch(stream_, kLong);
  credits().on_retained(0, kContext);
  the_gpu->is_pinned = false;
  credits().after_release(0);
  launch(stream_, kLong);
  EXPECT_TRUE(the_gpu->is_pinned);
  EXPECT_EQ(credit().held, ShimHeld::kOnGpu);
}

TEST_F(Credit, CollectivesAreNeverHeldApart) {
  const auto product = reinterpret_cast<CUfunction>(uintptr_t{0x700}),
             collective = reinterpret_cast<CUfunction>(uintptr_t{0x740});
  names = {{product, "gemm"}, {collective, "ncclDevKernel_AllReduce_Sum_f32_RING_LL"}};
  launch(stream_, kLong, false, product);
  EXPECT_EQ(credit().held, ShimHeld::kOnGpu);
  launch(stream_, kLong, false, collective);
  launch(stream_, kLong, false, product);
  EXPECT_EQ(credit().held, ShimHeld::kCollectives);
  EXPECT_EQ(count(stream_, Kind::kWait), 1u);
}

TEST_F(Credit, AsManyStreamsAsEverHoldAll) {
  std::vector<CUstream> streams;
  for (int i = 0; i < 3000; ++i) streams.push_back(the_gpu->create(i % 2 == 0));
  for (int round = 0; round < 3; ++round)
    for (const CUstream stream : streams) launch(stream, kShort);
  close_credit(*slot_);
  EXPECT_EQ(the_gpu->run(), 0u);
  open_credit(*slot_);
  EXPECT_EQ(the_gpu->run(), launches_);
}

// A random program: streams of every kind, events between them, graphs, captures, and an agent that
// opens, closes and deals out as it likes.
class RandomPrograms : public CreditsTest {
 protected:
  void begin(uint64_t seed) {
    start_over();
    random_.seed(seed);
    streams_ = {GS_CU_STREAM_LEGACY, GS_CU_STREAM_PER_THREAD};
    for (int i = 0; i < 6; ++i) streams_.push_back(the_gpu->create(i % 2 == 0));
    program_.clear();
    credit().most_ahead_us = seed % 2 == 0 ? 2000 : 0;
    on_host_wait = [this] {
      the_gpu->run();
      set_credit(*slot_, credit().issued - random_() % Credits::kMostAhead);
    };
  }
  CUstream any_stream() { return streams_[random_() % streams_.size()]; }
  CUevent any_event() { return reinterpret_cast<CUevent>(0x1000 + 64 * (random_() % 8)); }

  void step() {
    const CUstream stream = any_stream();
    FakeGpu::Queue& queue = the_gpu->queue(stream);
    switch (random_() % 16) {
      case 0:
        if (!queue.is_capturing) the_gpu->record(any_event(), stream);
        break;
      case 1:
        if (!queue.is_capturing) the_gpu->wait_for(stream, any_event());
        break;
      case 2:
        if (stream != GS_CU_STREAM_LEGACY) queue.is_capturing = !queue.is_capturing;
        break;
      case 3:
        change_credit();
        break;
      case 4:
        the_gpu->run();
        expect_no_dependence_on_what_is_held();
        break;
      default:
        if (!queue.is_capturing) program_[stream].push_back(launches_);
        launch(stream, 1000 + random_() % (random_() % 8 == 0 ? 2'000'000 : 50'000),
               random_() % 8 == 0);
    }
  }
  void change_credit() {
    const uint32_t what = random_() % 4;
    if (what == 0) return close_credit(*slot_);
    if (what == 1) return open_credit(*slot_);
    set_credit(*slot_, credit().issued - random_() % 20);
  }
  // What is let through contains all that it depends on: a launch has begun when all waits are let
  // through that there were when it was put in line.
  void expect_no_dependence_on_what_is_held() {
    const uint32_t word = credit().word;
    for (auto& [stream, queue] : the_gpu->queues())
      for (const Given& given : queue.given)
        if (given.kind == Kind::kLaunch && !given.has_run)
          ASSERT_GT(credit_lacking(word, given.value), 0) << "stuck though it was let through";
  }

  std::mt19937_64 random_;
  std::vector<CUstream> streams_;
  std::map<CUstream, std::vector<size_t>> program_;
};

TEST_F(RandomPrograms, AreNeverStuckAndNeverLost) {
  constexpr uint64_t kSeeds = GS_IS_SANITIZED ? 20 : 200, kSteps = 600;
  uint64_t waits = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    begin(seed);
    for (uint64_t i = 0; i < kSteps && !HasFatalFailure(); ++i) step();
    ASSERT_FALSE(HasFatalFailure());
    if (seed % 3 == 0) {
      is_the_agent_alive = false;  // whoever launches next frees all that waits
      for (const CUstream stream : streams_) the_gpu->queue(stream).is_capturing = false;
      for (int i = 0; i < 300; ++i) {
        const CUstream stream = any_stream();
        program_[stream].push_back(launches_);
        launch(stream, 1'000'000);
      }
    } else {
      open_credit(*slot_);
    }
    the_gpu->run();
    for (const CUstream stream : streams_) {
      FakeGpu::Queue& queue = the_gpu->queue(stream);
      EXPECT_EQ(queue.next, queue.given.size()) << "never lost, never stuck";
      EXPECT_EQ(count(stream, Kind::kLaunch), program_[stream].size());
      waits += count(stream, Kind::kWait);
    }
  }
  EXPECT_GT(waits, kSeeds * 20);
}

}  // namespace
}  // namespace gpushare::shim
