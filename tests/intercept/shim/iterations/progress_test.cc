// SPDX-License-Identifier: Apache-2.0
// Progress in one process, with a slot in ordinary memory and a clock that only the tests move:
// what it publishes, what it holds at the boundary, and that threads and the agent may do all of it
// at once.
#include "intercept/shim/iterations/progress.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "intercept/shim/driver/lookup.h"
#include "intercept/shim/link/gate.h"
#include "intercept/shim/link/wake.h"

namespace gpushare::shim {

// --- what the library has in attach.cc and lookup.cc --------------------------------------------

namespace {
constinit Process the_process{};
std::atomic<uint64_t> the_time{1'000'000'000};
}  // namespace

namespace detail {
constinit std::atomic<Process*> process{&the_process};
}
uint32_t attach() { return the_process.features.load(); }
void attach_again(const ShimSlot&) {}
void wake_agent() {}
uint64_t monotonic_ns() { return the_time.load(std::memory_order_relaxed); }
void* driver_function(const char*) { return nullptr; }

namespace {

using namespace std::chrono_literals;

constexpr uint64_t kStream = 7;

class ProgressTest : public testing::Test {
 protected:
  ProgressTest() {
    the_process.features = kShimIterations;
    the_process.slot = slot_.get();
    the_process.progress = nullptr;
    beat();
  }

  Progress& progress() { return *Progress::get(); }
  ShimIterations& words() { return slot_->iterations; }
  void beat() { slot_->beat_ns = monotonic_ns(); }
  PublishedIterations published() {
    PublishedIterations known;
    EXPECT_TRUE(read_published(words(), &known));
    return known;
  }
  // What the agent does.
  void run_until(uint64_t begun) {
    words().run_until.store(begun, std::memory_order_release);
    words().turn.fetch_add(1, std::memory_order_release);
    words().turn.notify_all();  // the same futex, though private: the wait is at most 50 ms
  }
  static bool eventually(const std::function<bool()>& is_so) {
    for (int i = 0; i < 5000; ++i) {
      if (is_so()) return true;
      std::this_thread::sleep_for(2ms);
    }
    return false;
  }

  // A step of a training loop: 40 kernels after their input, 1 ms.
  void train(int steps) {
    for (int step = 0; step < steps; ++step) {
      progress().copied(CopyWay::kToGpu, 1 << 20, false, kStream);
      for (uint64_t i = 0; i < 40; ++i) {
        the_time += 25'000;
        progress().launched(0x100 + i * 64, 100, kStream);
      }
    }
  }

  const std::unique_ptr<ShimSlot> slot_ = std::make_unique<ShimSlot>();
};

TEST_F(ProgressTest, OfAProgramThatLaunchesAtRandomNothingIsSaid) {
  uint64_t state = 1;
  for (int i = 0; i < 20'000; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    progress().launched(state >> 40, 100, kStream);
  }
  EXPECT_EQ(published().source, ShimSource::kNone);
  EXPECT_EQ(published().begun, 0u);
}

// The wrappers tell nothing while is_telling is false, and one launch after each look_up().
TEST_F(ProgressTest, OfAProgramWithoutIterationsLittleIsToldUntilItDoesSomethingNew) {
  the_process.is_telling = true;
  uint64_t launches = 0;
  while (the_process.is_telling && ++launches < 200'000) progress().launched(0x7F00, 132, kStream);
  EXPECT_GT(launches, 60'000U);
  ASSERT_FALSE(the_process.is_telling);
  for (int i = 0; i < 10; ++i) {
    Progress::look_up();
    EXPECT_TRUE(the_process.is_telling);
    progress().launched(0x7F00, 132, kStream);
    EXPECT_FALSE(the_process.is_telling) << "it did what it always does";
  }
  Progress::look_up();
  train(40);
  EXPECT_TRUE(the_process.is_telling);
  EXPECT_EQ(published().source, ShimSource::kRecognised);
}

TEST_F(ProgressTest, OfAProgramThatAnnouncesNothingIsTold) {
  the_process.is_telling = true;
  uint64_t began = 0;
  ASSERT_TRUE(progress().begin(ShimPhase::kUnknown, &began));
  EXPECT_FALSE(the_process.is_telling);
  Progress::look_up();
  EXPECT_FALSE(the_process.is_telling);
}

TEST_F(ProgressTest, WhatIsRecognisedIsPublished) {
  train(100);
  const PublishedIterations known = published();
  EXPECT_EQ(known.source, ShimSource::kRecognised);
  EXPECT_GE(known.confidence, 750u);
  EXPECT_GT(known.begun, 80u);
  EXPECT_EQ(known.ended, known.begun - 1);
  EXPECT_EQ(known.period_ns, 1'000'000u);
  EXPECT_EQ(known.latency_ns, known.ended * 1'000'000);
  EXPECT_EQ(known.busy_ns, known.ended * 1'000'000) << "it never waited";
  EXPECT_NEAR(static_cast<double>(known.p99_ns), 1e6, 0.2e6);
  EXPECT_EQ(known.launches, 40'000u);
  EXPECT_EQ(known.began_ns, the_time - 39 * uint64_t{25'000});
  EXPECT_EQ(known.skipped, 0u);
}

TEST_F(ProgressTest, TimesAreCountedByClass) {
  train(100);
  const PublishedIterations known = published();
  EXPECT_EQ(slot_->times.counts[time_class_of(1'000)], known.ended);
  EXPECT_EQ(slot_->times.sum_us, known.ended * 1'000);
  uint64_t began = 0;
  for (int i = 0; i < 3; ++i) {
    const uint64_t arrived = the_time;
    the_time += 30'000'000;
    ASSERT_TRUE(progress().begin(ShimPhase::kUnknown, &began));
    the_time += 15'000'000;
    ASSERT_TRUE(progress().end(began, arrived));
  }
  EXPECT_EQ(slot_->times.counts[time_class_of(45'000)], 3u) << "from the arrival";
  EXPECT_EQ(slot_->times.sum_us, known.ended * 1'000 + 3 * 45'000);
  uint64_t all = 0;
  for (const auto& count : slot_->times.counts) all += count;
  EXPECT_EQ(all, known.ended + 3);
}

TEST_F(ProgressTest, ATurnIsSoManyIterations) {
  train(50);
  for (const uint64_t turn : {1, 3, 10}) {
    const uint64_t begun = published().begun;
    const uint64_t launched = 40 * turn;
    run_until(begun + turn);
    std::atomic<bool> has_ended{false};
    std::thread program([&] {
      train(static_cast<int>(turn) + 1);
      has_ended = true;
    });
    ASSERT_TRUE(eventually([&] { return words().waiting == 1; }));
    EXPECT_EQ(published().begun, begun + turn);
    EXPECT_NE(words().waiting_since_ns, 0u);
    const uint64_t before = the_time;
    std::this_thread::sleep_for(5ms);
    EXPECT_EQ(the_time, before) << launched << " launches, and no more";
    EXPECT_FALSE(has_ended);
    // Another thread, another stream, other calls: nobody else is held.
    progress().launched(0x9000, 1, kStream + 1);
    progress().waited(kStream + 1);
    the_time += 7'000'000;
    beat();
    run_until(0);
    program.join();
    EXPECT_EQ(words().waiting, 0u);
    EXPECT_EQ(words().waiting_since_ns, 0u);
    EXPECT_EQ(published().begun, begun + turn + 1);
  }
  EXPECT_EQ(published().latency_ns, published().ended * 1'000'000)
      << "what it stood there belongs to no iteration";
  EXPECT_EQ(slot_->gave_up, 0u);
}

TEST_F(ProgressTest, WithoutRecognisedIterationsNobodyIsHeld) {
  run_until(1);
  for (int i = 0; i < 1000; ++i) progress().launched(0x100, 100, kStream);
  EXPECT_EQ(words().waiting, 0u);
}

TEST_F(ProgressTest, TheBoundaryOpensWhenTheAgentDies) {
  train(50);
  run_until(published().begun);
  std::thread program([&] { train(1); });
  ASSERT_TRUE(eventually([&] { return words().waiting == 1; }));
  the_time += 2 * kShimBeatTimeoutNs;
  program.join();
  EXPECT_EQ(slot_->gave_up, 1u);
  EXPECT_EQ(words().waiting, 0u);
}

TEST_F(ProgressTest, WhoWasHeldPassesTheGateAgain) {
  train(50);
  run_until(published().begun);
  std::atomic<bool> has_ended{false};
  std::thread program([&] {
    train(1);
    has_ended = true;
  });
  ASSERT_TRUE(eventually([&] { return words().waiting == 1; }));
  slot_->gate = 1;
  run_until(0);
  ASSERT_TRUE(eventually([&] { return slot_->waiting == 1; }));
  EXPECT_FALSE(has_ended);
  slot_->gate = 2;
  slot_->gate.notify_all();
  program.join();
}

TEST_F(ProgressTest, AnnouncedIterationsAreCountedAndEndTheGuessing) {
  train(50);
  const uint64_t before = published().begun;
  uint64_t began = 0, arrived = 0;
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(progress().arrive(&arrived));
    the_time += 1'000'000;
    ASSERT_TRUE(progress().begin(ShimPhase::kDecode, &began));
    the_time += 2'000'000;
    ASSERT_TRUE(progress().end(began, arrived));
  }
  const PublishedIterations known = published();
  EXPECT_FALSE(progress().is_guessing());
  EXPECT_EQ(known.source, ShimSource::kAnnounced);
  EXPECT_EQ(known.confidence, 1000u);
  EXPECT_EQ(known.phase, ShimPhase::kDecode);
  EXPECT_EQ(known.begun, before + 200);
  EXPECT_EQ(known.ended, known.begun);
  EXPECT_EQ(known.arrivals, 200u);
  EXPECT_EQ(known.period_ns, 3'000'000u);
  EXPECT_NEAR(static_cast<double>(known.p99_ns), 2e6, 0.3e6);
  train(50);
  EXPECT_EQ(published().begun, known.begun);
}

TEST_F(ProgressTest, SumsTellWhatCameBetween) {
  uint64_t began = 0;
  progress().begin(ShimPhase::kUnknown, &began);
  progress().end(began, 0);
  const PublishedIterations first = published();
  for (int i = 0; i < 10; ++i) {
    const uint64_t arrived = the_time;
    the_time += 500'000;
    progress().begin(ShimPhase::kUnknown, &began);
    the_time += 1'000'000;
    progress().end(began, arrived);
  }
  const PublishedIterations second = published();
  EXPECT_EQ(second.ended - first.ended, 10u);
  EXPECT_EQ(second.latency_ns - first.latency_ns, 15'000'000u) << "from the arrival";
  EXPECT_EQ(second.busy_ns - first.busy_ns, 10'000'000u);
}

TEST_F(ProgressTest, AnnouncedIterationsAreHeldWhereTheyBegin) {
  uint64_t began = 0;
  progress().begin(ShimPhase::kUnknown, &began);
  run_until(1);
  uint64_t began_later = 0;
  std::thread program([&] { progress().begin(ShimPhase::kUnknown, &began_later); });
  ASSERT_TRUE(eventually([&] { return words().waiting == 1; }));
  progress().launched(0x100, 1, kStream);
  EXPECT_TRUE(progress().end(began, 0)) << "what has begun goes on";
  the_time += 1'000'000;
  beat();
  run_until(2);
  program.join();
  EXPECT_EQ(began_later, the_time) << "it begins when it is let in";
  EXPECT_EQ(published().begun, 2u);
}

// Everything at once, also for sanitizers: a turn is never exceeded, and no record is mixed.
TEST_F(ProgressTest, ThreadsAnnounceWhileTheAgentLetsThemTakeTurns) {
  constexpr int kThreads = 4, kEach = 300;
  std::atomic<bool> is_over{false};
  uint64_t began = 0;
  progress().begin(ShimPhase::kUnknown, &began);
  run_until(1);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < kEach; ++round) {
        uint64_t mine = 0, arrived = 0;
        while (!progress().arrive(&arrived)) {
        }
        while (!progress().begin(ShimPhase::kPrefill, &mine)) {
        }
        progress().launched(0x100, 1, kStream);
        the_time += 1000;
        while (!progress().end(mine, arrived)) {
        }
      }
    });
  std::thread reader([&] {
    while (!is_over) {
      PublishedIterations known;
      if (!read_published(words(), &known)) continue;
      EXPECT_LE(known.ended, known.begun);
      EXPECT_LE(known.begun - known.ended, 1u + kThreads);
      EXPECT_LE(known.ended * 1000, known.latency_ns + uint64_t{1000} * kThreads);
    }
  });
  uint64_t allowed = 1;
  while (allowed < 1 + kThreads * kEach) {
    allowed += 25;
    beat();
    run_until(allowed);
    ASSERT_TRUE(eventually([&] {
      beat();
      const uint64_t begun = words().begun;
      EXPECT_LE(begun, allowed);
      return begun == allowed || begun == 1 + kThreads * kEach;
    }));
  }
  run_until(0);
  for (std::thread& thread : threads) thread.join();
  is_over = true;
  reader.join();
  EXPECT_EQ(published().begun, 1u + kThreads * kEach);
  EXPECT_EQ(published().arrivals, static_cast<uint64_t>(kThreads * kEach));
}

TEST_F(ProgressTest, ThreadsMayLaunchAtOnce) {
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (uint64_t k = 0; k < 5000; ++k) {
        progress().launched(0x100 + k % 20 * 64, 10, 100 + i);
        if (k % 20 == 19) progress().waited(100 + i);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(published().confidence, 1000u);
}

// A handler that interrupts the holder of the lock goes on, and its launch is not noted.
std::atomic<uint64_t> handled{0};
void on_signal(int) {
  the_process.progress.load()->launched(0x5000, 1, 99);
  handled.fetch_add(1);
}

TEST_F(ProgressTest, ASignalHandlerNeverWaitsForWhatItInterrupted) {
  progress();
  struct sigaction action{};
  action.sa_handler = on_signal;
  ::sigaction(SIGUSR1, &action, nullptr);
  std::atomic<bool> is_over{false};
  std::thread program([&] {
    for (uint64_t k = 0; !is_over; ++k) progress().launched(0x100 + k % 20 * 64, 10, kStream);
  });
  for (uint64_t sent = 1; sent <= 200; ++sent) {
    ::pthread_kill(program.native_handle(), SIGUSR1);
    ASSERT_TRUE(eventually([&] { return handled >= sent; }));
  }
  is_over = true;
  program.join();
}

TEST_F(ProgressTest, AQuestionCountsWhenItEndsAWait) {
  constexpr uint64_t kEvent = 8, kOther = 9;
  EXPECT_FALSE(Progress::has_polled(kEvent, CUDA_SUCCESS)) << "it did not wait";
  EXPECT_FALSE(Progress::has_polled(kEvent, CUDA_ERROR_NOT_READY));
  EXPECT_FALSE(Progress::has_polled(kOther, CUDA_SUCCESS));
  EXPECT_TRUE(Progress::has_polled(kEvent, CUDA_SUCCESS));
  EXPECT_FALSE(Progress::has_polled(kEvent, CUDA_SUCCESS));
  EXPECT_FALSE(Progress::has_polled(kEvent, CUDA_ERROR_NOT_READY));
  progress().launched(0x100, 1, kStream);
  EXPECT_FALSE(Progress::has_polled(kEvent, CUDA_SUCCESS)) << "it had other things to do";
}

TEST_F(ProgressTest, WhatTheProgramExpectsCountsFromTheIterationsThatHaveBegun) {
  EXPECT_EQ(published().expected, 0u);
  uint64_t began = 0;
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(progress().begin(ShimPhase::kUnknown, &began));
    ASSERT_TRUE(progress().end(began, 0));
  }
  const uint64_t begun = published().begun;
  ASSERT_TRUE(progress().expect(100));
  EXPECT_EQ(published().expected, begun + 100);
  ASSERT_TRUE(progress().expect(UINT64_MAX));
  EXPECT_EQ(published().expected, UINT64_MAX);
  ASSERT_TRUE(progress().expect(0));
  EXPECT_EQ(published().expected, 0u);
}

}  // namespace
}  // namespace gpushare::shim
