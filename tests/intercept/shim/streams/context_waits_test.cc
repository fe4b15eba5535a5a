// SPDX-License-Identifier: Apache-2.0
// A wait for the context waits for the graphs that were launched before it, wherever they run.
#include <random>
#include <thread>

#include "tests/intercept/shim/streams/execs_rig.h"

namespace gpushare::shim {
namespace {

TEST_F(ExecsTest, AWaitForTheContextWaitsForAllGraphsThatWereLaunchedAway) {
  size_t waited_for = 0;
  for (unsigned seed = 1; seed <= 15; ++seed) {
    begin_anew();
    std::minstd_rand random(seed);
    std::vector<CUstream> all = new_streams();
    all.push_back(GS_CU_STREAM_PER_THREAD);
    visit(kSets, all);
    const auto any = [&]() -> CUstream& { return all[random() % all.size()]; };
    for (int step = 0; step < 150; ++step) {
      CUstream& stream = any();
      keep_busy(random() % 2 == 0);
      switch (random() % 8) {
        case 0:
          move_to(kSets[random() % std::size(kSets)]);
          break;
        case 1:
          if (stream == kLegacy || stream == GS_CU_STREAM_PER_THREAD) break;
          destroy_with_graphs(stream);
          stream = new_stream(random() % 2 == 0);
          break;
        case 2: {
          // The next launches may be made by another thread while this one waits.
          const size_t before = away_.size();
          other_threads = [&] {
            const Stream& other = *streams().find(all[1], Flavor::kLegacy);
            if ((other.users & Stream::kMoving) != 0) return;  // it would wait until we are done
            std::thread([&] { launch_graph(all[1]); }).join();
          };
          keep_busy(false);  // what is only asked for ends
          before_context_wait(streams(), nullptr);
          other_threads = {};
          const Work done = the_gpu->done();
          for (size_t i = 0; i < before; ++i)
            ASSERT_TRUE(done.has(away_[i])) << seed << " " << step;
          waited_for += before;
          break;
        }
        case 3:
          launch(stream);
          break;
        default:
          launch_graph(stream);
      }
    }
  }
  EXPECT_GT(waited_for, 500u);
}

// Which this thread cannot name when it is home again.
TEST_F(ExecsTest, AWaitForTheContextWaitsForAGraphInTheOwnStreamOfAnotherThread) {
  for (const bool is_home_again : {false, true}) {
    begin_anew();
    launch_in_partition();
    keep_busy(false);
    std::thread([&] {
      launch(GS_CU_STREAM_PER_THREAD);
      keep_busy(true);
      launch_graph(GS_CU_STREAM_PER_THREAD);
      if (!is_home_again) return;
      move_to(0);
      launch(GS_CU_STREAM_PER_THREAD);
    }).join();
    ASSERT_EQ(away_.size(), 1u);
    ASSERT_FALSE(the_gpu->done().has(away_[0]));
    keep_busy(false);
    before_context_wait(streams(), nullptr);
    EXPECT_TRUE(the_gpu->done().has(away_[0])) << is_home_again;
  }
}

// The other one captures a non-blocking stream, which does not concern the legacy stream.
TEST_F(ExecsTest, AWaitForTheContextWaitsForAGraphInTheLegacyStreamWhileAnotherOneCaptures) {
  const CUstream captures = new_stream(false);
  launch_in_partition();
  const std::vector<CUstream> all{kLegacy, captures};
  visit(kSets, all);
  move_to(1);
  for (const CUstream stream : all) launch(stream);
  keep_busy(true);
  launch_graph(kLegacy);
  ASSERT_EQ(away_.size(), 1u);
  Stream& capturing = *streams().find(captures, Flavor::kLegacy);
  streams().before_capture(capturing);
  streams().begin_capture(capturing);
  before_context_wait(streams(), nullptr);
  EXPECT_TRUE(the_gpu->done().has(away_[0]));
  streams().end_capture(capturing);
}

// With nothing behind it that is waited for anyway.
TEST_F(ExecsTest, AWaitForTheContextWaitsForAGraphWhoseStreamHasEnded) {
  for (const bool is_blocking : {false, true}) {
    begin_anew();
    const CUstream stream = new_stream(is_blocking);
    launch_in_partition();
    visit(kSets, std::vector<CUstream>{stream});
    move_to(1);
    launch(stream);
    keep_busy(true);
    launch_graph(stream);
    ASSERT_EQ(away_.size(), 1u);
    destroy_with_graphs(stream);
    ASSERT_FALSE(the_gpu->done().has(away_[0]));
    before_context_wait(streams(), nullptr);
    EXPECT_TRUE(the_gpu->done().has(away_[0])) << is_blocking;
    keep_busy(false);
  }
}

// It may need what this thread does after its wait.
TEST_F(ExecsTest, AWaitForTheContextDoesNotWaitForWhatIsLaunchedMeanwhile) {
  const CUstream one = new_stream(false), two = new_stream(false);
  launch_in_partition();
  visit(kSets, std::vector<CUstream>{one, two});
  move_to(1);
  for (const CUstream s : {one, two}) launch(s);
  keep_busy(true);
  launch_graph(one);
  launch_graph(two);
  ASSERT_EQ(away_.size(), 2u);
  size_t late = 0;
  bool is_waiting = false;
  other_threads = [&] {
    const Stream& a = *streams().find(one, Flavor::kLegacy);
    const Stream& b = *streams().find(two, Flavor::kLegacy);
    if ((a.users & Stream::kMoving) != 0 || (b.users & Stream::kMoving) != 0) return;
    if (is_waiting || !(the_gpu->done().has(away_[0]) || the_gpu->done().has(away_[1]))) return;
    is_waiting = true;  // the first wait has begun
    Call call(*this, one);
    late = call.number();
    call.put();
  };
  before_context_wait(streams(), nullptr);
  other_threads = {};
  ASSERT_NE(late, 0u);
  EXPECT_FALSE(the_gpu->done().has(late));
}

// While this thread asks whether its graph has ended.
TEST_F(ExecsTest, AWaitForTheContextWaitsForAnOwnStreamThatLeavesHomeAgain) {
  launch_in_partition();
  keep_busy(false);
  std::atomic<int> step{0};
  std::thread owner([&] {
    launch(GS_CU_STREAM_PER_THREAD);
    keep_busy(true);
    launch_graph(GS_CU_STREAM_PER_THREAD);
    move_to(0);
    launch(GS_CU_STREAM_PER_THREAD);
    step = 1;
    while (step != 2) std::this_thread::yield();
    move_to(1);
    Stream& own = *streams().find(GS_CU_STREAM_PER_THREAD, Flavor::kLegacy);
    for (int i = 0; i < 3000 && own.is_own_at_home(); ++i) {
      launch(GS_CU_STREAM_PER_THREAD);
      usleep(100);
    }
    step = own.is_own_at_home() ? 4 : 3;
  });
  while (step != 1) std::this_thread::yield();
  ASSERT_EQ(away_.size(), 1u);
  int asked = 0;
  the_gpu->is_busy = [&] {
    if (++asked == 3) step = 2;
    return true;
  };
  before_context_wait(streams(), nullptr);
  EXPECT_TRUE(the_gpu->done().has(away_[0]));
  owner.join();
  EXPECT_EQ(step, 3);
}

}  // namespace
}  // namespace gpushare::shim
