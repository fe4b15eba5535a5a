// SPDX-License-Identifier: Apache-2.0
// What waits for what between the legacy stream and others, when these move; also where one thread
// asks what has ended while another one destroys a stream, or is in its next call.
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "tests/intercept/shim/streams/streams_rig.h"

namespace gpushare::shim {
namespace {

using namespace std::chrono_literals;

TEST_F(StreamsTest, TheLegacyStreamAndBlockingStreamsWaitForEachOther) {
  const CUstream first = new_stream(), second = new_stream();
  for (const uint64_t groups : {1, 0, 2}) {
    move_to(groups);
    for (const CUstream stream : {first, kLegacy, second, kLegacy, first}) launch(stream);
    copy(kLegacy);
    launch(second);
  }
  EXPECT_EQ(broken(), std::vector<std::string>{});
}

TEST_F(StreamsTest, WorkOfTheLegacyStreamIsWaitedForOnceItIsThere) {
  const CUstream stream = new_stream();
  move_to(1);
  launch(stream);
  launch(kLegacy);
  expect_waited_for(kLegacy, stream);
}

TEST_F(StreamsTest, WorkOfABlockingStreamIsWaitedForOnceItIsThere) {
  const CUstream stream = new_stream();
  move_to(1);
  launch(stream);
  launch(kLegacy);
  expect_waited_for(stream, kLegacy);
}

// The legacy stream is at home with all others when its call begins, and not any more when it ends.
TEST_F(StreamsTest, AStreamThatLeavesMeanwhileWaitsForTheLegacyStream) {
  const CUstream stream = new_stream();
  visit(kThereAndHome, {{stream}});
  launch(kLegacy);
  expect_waited_for(kLegacy, stream);
}

// The same, in the midst of leaving: the place it comes to waits only for what was there before.
TEST_F(StreamsTest, AStreamThatIsLeavingWaitsForTheLegacyStream) {
  const CUstream stream = new_stream();
  visit(kThereAndHome, {{stream}});
  launch(kLegacy);
  Call legacy(*this, kLegacy);
  move_to(1);
  int times = 0;
  other_threads = [&] {
    if (++times != 2) return;  // when the event is recorded
    legacy.put();
    legacy.end();
  };
  launch(stream);
  other_threads = {};
  ASSERT_GE(times, 2);
  EXPECT_TRUE(is_first(legacy.number(), launch(stream)));
  EXPECT_EQ(broken(), std::vector<std::string>{});
}

// An event in the legacy stream's home would be behind all blocking streams there.
TEST_F(StreamsTest, WhoWaitsForTheLegacyStreamWaitsForNobodyElse) {
  const CUstream away = new_stream(), home = new_stream();
  move_to(1);
  launch(away);
  const auto operate = [&](CUstream stream) {  // moves nothing
    Call call(*this, stream, Use::kOperation);
    call.put();
    return call.number();
  };
  const size_t legacy = operate(kLegacy), other = operate(home), later = launch(away);
  EXPECT_TRUE(is_first(legacy, later));
  EXPECT_FALSE(is_first(other, later));
}

TEST_F(StreamsTest, TheLegacyStreamWaitsForWhatADestroyedStreamHasLeft) {
  for (const bool is_legacy_away : {false, true}) {
    start_over();
    move_to(1);
    const CUstream stream = new_stream();
    if (is_legacy_away) launch(kLegacy);
    const size_t left = launch(stream);
    destroy(stream);
    EXPECT_TRUE(is_first(left, launch(kLegacy)));
  }
}

// Natively it never blocks, and the recording of an event may, beside another thread's cuMemFree.
TEST_F(StreamsTest, AQueryOfTheLegacyStreamPutsNothingInLine) {
  const auto query = [] {
    return StreamUse(kLegacy, Flavor::kLegacy, Use::kQuery).answer(CUDA_SUCCESS);
  };
  struct Row {
    const char* description;
    bool is_legacy_away, is_work_away;
  };
  for (const Row& row :
       {Row{"both away", true, true}, Row{"the legacy stream at home", false, true},
        Row{"the work at home", true, false}}) {
    SCOPED_TRACE(row.description);
    start_over();
    const CUstream away = new_stream(), home = new_stream();
    visit(kSets, {{kLegacy, away}});
    if (!row.is_legacy_away) {
      move_to(0);
      launch(kLegacy);
      move_to(3);
      launch(away);
    }
    EXPECT_EQ(query(), CUDA_SUCCESS);
    Call call(*this, row.is_work_away ? away : home, Use::kOperation);
    ASSERT_EQ(call.is_away(), row.is_work_away);
    call.put();
    call.end();
    the_gpu->running.add(call.number());
    int calls = 0;
    other_threads = [&] { ++calls; };
    for (int i = 0; i < 3; ++i) EXPECT_EQ(query(), CUDA_ERROR_NOT_READY);
    other_threads = {};
    EXPECT_EQ(calls, 0);
    EXPECT_TRUE(is_first(call.number(), copy(kLegacy))) << "it is waited for later";
    the_gpu->running = {};
    EXPECT_EQ(query(), CUDA_SUCCESS);
    EXPECT_EQ(broken(), std::vector<std::string>{});
  }
}

// At each moment of its end.
TEST_F(StreamsTest, TheLegacyStreamWaitsForAStreamThatIsBeingDestroyed) {
  for (const bool is_legacy_away : {false, true})
    for (int when = 1;; ++when) {
      SCOPED_TRACE(when);
      start_over();
      const CUstream stream = new_stream(), other = new_stream();
      visit(kSets, {{kLegacy, stream, other}});
      if (!is_legacy_away) {
        move_to(0);
        launch(kLegacy);
        move_to(3);
        for (const CUstream each : {stream, other}) launch(each);
      }
      const size_t left = launch(stream);
      size_t legacy = 0;
      int times = 0;
      other_threads = [&] {
        if (++times != when) return;
        std::thread([&] {
          Call call(*this, kLegacy, Use::kOperation);
          call.put();
          legacy = call.number();
        }).join();
      };
      destroy(stream);
      other_threads = {};
      if (legacy == 0) {
        EXPECT_GT(when, 2);
        break;
      }
      EXPECT_TRUE(is_first(left, legacy));
      EXPECT_EQ(broken(), std::vector<std::string>{});
    }
}

// It waits for the streams that have work, and looks at no others.
TEST_F(StreamsTest, AnOperationOfTheLegacyStreamCostsTheSameWithManyStreams) {
  const auto calls_with = [&](int streams) {
    start_over();
    move_to(1);
    std::vector<CUstream> made;
    for (int i = 0; i < streams; ++i) made.push_back(new_stream());
    for (const CUstream stream : made) launch(stream);
    launch(kLegacy);
    int calls = 0;
    other_threads = [&] { ++calls; };
    for (int i = 0; i < 8; ++i) {
      launch(made[0]);
      launch(kLegacy);
    }
    other_threads = {};
    return calls;
  };
  const int with_few = calls_with(2);
  EXPECT_GT(with_few, 0);
  EXPECT_EQ(calls_with(1000), with_few);
}

// While a thread asks whether the legacy stream is empty, another one destroys a stream that is
// not, and stands still where it makes home wait for it. It may also wait for the first one: then
// that goes on after a while.
TEST_F(StreamsTest, LegacyWorkWaitsForAStreamThatIsDestroyedDuringAQuestion) {
  constexpr auto kPatience = 200ms;
  const CUstream stream = new_stream();
  visit({{1}}, {{kLegacy, stream}});
  const size_t work = launch(stream);
  the_gpu->running.add(work);
  std::promise<void> asked, made;
  std::shared_future<void> has_made = made.get_future().share();
  std::thread destroyer([&] {
    asked.get_future().wait();
    destroy(stream);
  });
  const std::thread::id other = destroyer.get_id();
  const CUstream there = streams().find(stream, Flavor::kLegacy)->physical();
  std::atomic<bool> is_first_question = true;
  before_question = [&](CUstream which) {
    if (which != there || !is_first_question.exchange(false)) return;
    asked.set_value();
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (streams().find(stream, Flavor::kLegacy) != nullptr &&
           std::chrono::steady_clock::now() < until)
      std::this_thread::yield();
  };
  before_recording = [&](CUstream) {
    if (std::this_thread::get_id() == other) has_made.wait_for(kPatience);
  };
  {
    const StreamUse query(kLegacy, Flavor::kLegacy, Use::kQuery);
  }
  EXPECT_FALSE(is_first_question) << "nothing was asked";
  const size_t legacy = launch(kLegacy);
  made.set_value();
  destroyer.join();
  before_question = before_recording = {};
  EXPECT_TRUE(is_first(work, legacy));
  the_gpu->running = {};
}

// Its next call waits for the legacy stream, which is away, by an event of the stream's own.
TEST_F(StreamsTest, LegacyWorkWaitsForAThreadsOwnStreamWhoseNextCallHasBegun) {
  std::promise<void> has_launched, may_end;
  std::thread other([&] {  // with one such stream alone there are no events
    launch(GS_CU_STREAM_PER_THREAD);
    has_launched.set_value();
    may_end.get_future().wait();
  });
  has_launched.get_future().wait();
  visit(kThereAndHome, {{kLegacy}});
  Call first(*this, GS_CU_STREAM_PER_THREAD, Use::kOperation);
  move_to(1);
  launch(kLegacy);
  first.put();
  first.end();
  ASSERT_FALSE(first.is_away());
  ASSERT_NE(streams().find(kLegacy, Flavor::kLegacy)->place, 0);
  the_gpu->running.add(first.number());
  Call next(*this, GS_CU_STREAM_PER_THREAD, Use::kOperation);
  {
    const StreamUse wait(kLegacy, Flavor::kLegacy, Use::kWait);
  }
  EXPECT_TRUE(is_first(first.number(), launch(kLegacy)));
  the_gpu->running = {};
  may_end.set_value();
  other.join();
}

}  // namespace
}  // namespace gpushare::shim
