// SPDX-License-Identifier: Apache-2.0
// Legacy work comes behind all work of blocking streams, also where one thread asks what has ended
// while another one destroys the stream, or is in its next call.
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "tests/intercept/shim/streams/streams_rig.h"

namespace gpushare::shim {
namespace {

using namespace std::chrono_literals;

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
