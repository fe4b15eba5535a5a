// SPDX-License-Identifier: Apache-2.0
// What waits for what when streams move, call by call (streams_rig.h has the rule).
#include <chrono>
#include <random>
#include <thread>

#include "intercept/shim/driver/bypass.h"
#include "tests/intercept/shim/streams/streams_rig.h"

namespace gpushare::shim {
namespace {

TEST_F(StreamsTest, AStreamIsOneQueueWhereverItGoes) {
  const CUstream stream = new_stream();
  for (const uint64_t groups : {0, 1, 2, 0, 6, 1}) {
    move_to(groups);
    launch(stream);
    Call call(*this, stream);
    call.put();
    EXPECT_EQ(call.is_away(), groups != 0);
  }
  EXPECT_EQ(broken(), std::vector<std::string>{});
  EXPECT_EQ(slot_->gpus[0].moves, 5u);
}

TEST_F(StreamsTest, NonBlockingStreamsPass) {
  move_to(1);
  const CUstream passing = new_stream(false);
  const size_t one = launch(passing), legacy = launch(kLegacy), other = launch(passing);
  EXPECT_FALSE(is_first(one, legacy));
  EXPECT_FALSE(is_first(legacy, other));
  EXPECT_TRUE(is_first(one, other));
}

TEST_F(StreamsTest, BlockingStreamsPassEachOther) {
  move_to(1);
  const CUstream one = new_stream(), other = new_stream();
  const size_t first = launch(one), second = launch(other), third = launch(one);
  EXPECT_FALSE(is_first(first, second));
  EXPECT_FALSE(is_first(second, third));
}

TEST_F(StreamsTest, AStreamOfAContextThatIsGoneIsForgotten) {
  const CUstream stream = new_stream();
  launch(stream);
  EXPECT_NE(streams().find(stream, Flavor::kLegacy), nullptr);
  streams().before_release(0, false);
  EXPECT_EQ(streams().find(stream, Flavor::kLegacy), nullptr);
  EXPECT_EQ(streams().find_at_once(kLegacy, Flavor::kLegacy), nullptr);
}

TEST_F(StreamsTest, AsManyStreamsAsEverComeOneAfterTheOther) {
  for (int i = 0; i < 200'000; ++i) destroy(new_stream());
  EXPECT_EQ(streams().listed(), 0u) << "those that are gone cost nothing when the others move";
  const CUstream stream = new_stream();
  move_to(1);
  launch(stream);
  Call call(*this, stream);
  EXPECT_TRUE(call.is_away());
  EXPECT_EQ(slot_->gpus[0].applied, 1u);
}

// A library of the program reaches the driver past the shim, and so finds all streams at home.
class BypassTest : public StreamsTest {
 protected:
  ~BypassTest() override {
    is_driver_bypassed = false;
    the_gpu->is_busy = {};
  }
};

TEST_F(BypassTest, AllStreamsGoHomeBehindTheirWorkForGood) {
  const std::vector<CUstream> all = new_streams();
  move_to(1);
  std::vector<size_t> launches;
  for (const CUstream stream : all) launches.push_back(launch(stream));
  the_gpu->is_busy = [] { return true; };
  gs_note_deep_bind();
  for (size_t i = 0; i < all.size(); ++i) {
    const CUstream home = all[i] == kLegacy ? GS_CU_STREAM_LEGACY : all[i];
    EXPECT_TRUE(the_gpu->before(home).has(launches[i])) << i;
    Call call(*this, all[i]);
    call.put();
    EXPECT_FALSE(call.is_away()) << i;
  }
  EXPECT_EQ(broken(), std::vector<std::string>{});
  EXPECT_EQ(slot_->gpus[0].follows, ShimFollows::kBypassed);
  streams().before_destroy(reinterpret_cast<CUstream>(uintptr_t{0x7777}));  // one it does not know
  Call call(*this, all[1]);
  EXPECT_FALSE(call.is_away());
}

TEST_F(BypassTest, NoneLeavesHomeIfTheLibraryCameFirst) {
  gs_note_deep_bind();
  expect_none_leaves(ShimFollows::kBypassed);
}

TEST_F(StreamsTest, WithoutMemoryForEventsTheHostWaits) {
  const CUstream blocking = new_stream(), other = new_stream();
  move_to(1);
  launch(blocking);
  launch(other);
  record_answer = CUDA_ERROR_OUT_OF_MEMORY;
  int questions = 0;
  the_gpu->is_busy = [&] { return ++questions % 5 != 0; };
  launch(kLegacy);
  launch(other);
  copy(blocking);
  launch(blocking);
  EXPECT_EQ(broken(), std::vector<std::string>{});
  EXPECT_GT(questions, 5);
  record_answer = CUDA_SUCCESS;
  the_gpu->is_busy = {};
}

// A thread was cancelled in its launch, or a signal handler ends the program in one.
TEST_F(StreamsTest, AStreamThatIsUsedForEverEndsAllTheSame) {
  const CUstream stream = new_stream();
  move_to(1);
  launch(stream);
  {
    Call call(*this, stream);
    const auto began = std::chrono::steady_clock::now();
    streams().before_destroy(stream);
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60));
    call.put();
    EXPECT_TRUE(call.is_away()) << "its stand-in is there still";
    the_gpu->destroy(stream);
    the_gpu->create_again(stream);
    streams().on_created(stream);
    Call other(*this, stream);
    EXPECT_EQ(other.known(), nullptr) << "its entry is taken";
  }
  streams().before_destroy(stream);
  the_gpu->destroy(stream);
  the_gpu->create_again(stream);
  streams().on_created(stream);
  Call call(*this, stream);
  EXPECT_NE(call.known(), nullptr) << "the thread has left it";
}

// Otherwise it would end a capture, or put something in line.
TEST_F(StreamsTest, WhetherTheLegacyStreamCapturesConcernsNoOrder) {
  const CUstream blocking = new_stream();
  move_to(1);
  launch(kLegacy);
  launch(blocking);
  size_t recordings = 0;
  before_recording = [&](CUstream) { ++recordings; };
  {
    const StreamUse use(kLegacy, Flavor::kLegacy, Use::kQuestion);
  }
  before_recording = {};
  EXPECT_EQ(recordings, 0u);
  launch(kLegacy);
  EXPECT_EQ(broken(), std::vector<std::string>{});
}

// A profiler's callback runs within the calls that the shim makes to the driver.
TEST_F(StreamsTest, ACallbackMayUseTheStreamThatMoves) {
  const CUstream stream = new_stream();
  visit(kThereAndHome, {{stream}});
  launch(stream);
  the_gpu->is_busy = [] { return true; };
  int times = 0;
  other_threads = [&] {
    if (++times == 1) launch(stream);
  };
  move_to(1);
  launch(stream);
  other_threads = {};
  EXPECT_GE(times, 1);
  EXPECT_EQ(slot_->gpus[0].moves, 3u);
}

TEST_F(StreamsTest, OrderHoldsAcrossThreads) {
  const std::vector<CUstream> handles = new_streams();
  visit(kSets, handles);
  std::vector<std::thread> threads;
  for (uint64_t seed = 1; seed <= 4; ++seed)
    threads.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      for (int i = 0; i < 400; ++i) {
        if (random() % 8 == 0) move_to(random() % std::size(kSets));
        const CUstream stream = handles[random() % handles.size()];
        random() % 4 == 0 ? copy(stream) : launch(stream);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(broken(), std::vector<std::string>{});
  EXPECT_GT(slot_->gpus[0].moves, 50u);
}

// More threads than processors, so that now and then one of them stands still inside a call while
// the others use the same stream.
TEST_F(StreamsTest, OrderHoldsBesideThreadsThatStandStill) {
  constexpr int kRounds = 60, kThreads = 16, kCalls = 50;
  for (int round = 0; round < kRounds; ++round) {
    start_over();
    const CUstream stream = new_stream();
    visit({{1}}, {{kLegacy, stream}});
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] {
        for (int j = 0; j < kCalls; ++j) launch((i + j) % 2 == 0 ? stream : kLegacy);
      });
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(broken(), std::vector<std::string>{}) << "round " << round;
  }
}

// An address is one of a stream of another device, whose legacy stream had not waited for it.
TEST_F(StreamsTest, OrderHoldsInAStreamWhoseAddressAnotherDeviceHad) {
  const CUstream stream = new_stream();
  visit({{1}}, {{kLegacy, stream}});
  launch(stream);
  destroy(stream);
  const CUcontext other = reinterpret_cast<CUcontext>(uintptr_t{0x600});
  streams().on_retained(1, other);
  current_context = other;
  the_gpu->create_again(stream);
  streams().on_created(stream);
  visit(kThereAndHome, {{kLegacy, stream}});
  move_to(1);
  for (const CUstream each : {stream, kLegacy, stream, kLegacy}) {
    Call call(*this, each);
    call.put();
    EXPECT_TRUE(call.is_away());
  }
  EXPECT_EQ(broken(), std::vector<std::string>{});
  current_context = kContext;
}

}  // namespace
}  // namespace gpushare::shim
