// SPDX-License-Identifier: Apache-2.0
// Launches of one executable graph run one after the other, whichever streams they are in, wherever
// these are, and whatever becomes of them.
#include <atomic>
#include <thread>

#include "tests/intercept/shim/streams/execs_rig.h"

namespace gpushare::shim {
namespace {

const CUcontext kOtherContext = reinterpret_cast<CUcontext>(uintptr_t{0x700});

TEST_F(ExecsTest, LaunchesInStreamsAndPlacesOfAllKindsAreInOrder) {
  const std::vector<CUstream> all = new_streams();
  visit(kSets, all);
  for (const bool is_busy : {true, false})
    for (const uint64_t groups : {1, 2, 0, 3}) {
      move_to(groups);
      keep_busy(is_busy);
      for (const CUstream stream : all) launch_graph(stream);
      graphs().on_updated(exec_, graph_);
      refuses_updates = groups == 2;
    }
  EXPECT_TRUE(are_in_order());
}

// Whatever became of their streams: they moved, ended, got other work, or other threads launch more
// meanwhile.
// The driver refuses a copy as too large, as where the next partition is smaller.
TEST_F(ExecsTest, AGraphThatIsTooLargeForAPlaceRunsBehindItsCopies) {
  const CUstream first = new_stream(), second = new_stream();
  go_to_partition({first, second});
  const size_t copy = launch_graph(first);
  keep_busy(true);
  Call call(*this, second);
  const Locked locked(known().lock);
  Stream* const last = known().last;
  const Exec::Place at = known().at;
  ASSERT_NE(graphs().choose(known(), call.known(), call.physical()), exec_);
  known().last = last;
  known().at = at;
  ASSERT_EQ(graphs().stay(known(), *call.known(), call.physical()), exec_);
  call.put_at_home();
  EXPECT_TRUE(is_first(copy, call.number()));
  EXPECT_EQ(graphs().choose(known(), call.known(), call.physical()), exec_) << "not tried again";
  EXPECT_EQ(the_execs.size(), 1u) << "no copy is left";
}

// The driver gives objects of the program back when no graph and no executable graph has them.
TEST_F(ExecsTest, NothingHasTheObjectsOfAGraphAfterItsUpdate) {
  const CUstream stream = new_stream(false);
  go_to_partition({stream});
  graphs().note_object();
  launch_graph(stream);
  EXPECT_EQ(the_execs.size(), 2u) << "the original and a copy";
  EXPECT_EQ(the_graphs.size(), 2u) << "the graph, and what copies are made of";
  graphs().on_updated(exec_, graph_);
  EXPECT_EQ(the_execs.size(), 1u);
  EXPECT_EQ(the_graphs.size(), 1u);
  keep_busy(true);
  launch_graph(stream);
  launch_graph(new_stream(false));
  EXPECT_TRUE(are_in_order());
}

TEST_F(ExecsTest, AsManyGraphsAsEverComeOneAfterTheOther) {
  constexpr uint32_t kMany = 3 * Graphs::kTableSize;
  for (uint32_t i = 0; i < kMany; ++i) {
    const auto made = new_handle<CUgraphExec>();
    graphs().on_instantiated(made, graph_, 0);
    const Exec* const found = graphs().find(made);
    ASSERT_TRUE(found != nullptr && found->original == made) << i;
    graphs().before_destroy(made);
  }
  EXPECT_EQ(known().original, exec_);
  const CUstream stream = new_stream(false);
  go_to_partition({stream});
  for (int i = 0; i < 2; ++i) launch_graph(stream);
  EXPECT_TRUE(are_in_order());
}

// Of which the work runs on, or has ended, when the next thread comes.
TEST_F(ExecsTest, LaunchesInTheOwnStreamsOfThreadsThatEndAreInOrder) {
  const CUstream other = new_stream(false);
  for (const bool is_busy : {true, false, true, false})
    for (const uint64_t groups : {1, 2, 0}) {
      keep_busy(false);
      move_to(groups);
      launch(other);
      keep_busy(is_busy);
      std::thread([&] { launch_graph(GS_CU_STREAM_PER_THREAD); }).join();
    }
  EXPECT_TRUE(are_in_order());
}

// A stream of another context, say, which the shim does not know.
TEST_F(ExecsTest, LaunchesInAStreamThatIsNotKnownAreInOrder) {
  for (const bool is_changed : {false, true}) {
    const CUstream first = new_stream(false), unknown = the_gpu->create(false);
    go_to_partition({first});
    launch_graph(first);
    keep_busy(true);
    const auto change = [&] {
      if (is_changed) graphs().on_updated(exec_, graph_);
      refuses_updates = is_changed;
    };
    change();
    launch_graph(unknown);
    change();
    launch_graph(first);
    EXPECT_TRUE(are_in_order()) << is_changed;
    move_to(2);
    launch_graph(first);
    EXPECT_TRUE(are_in_order()) << is_changed;
    keep_busy(false);
    refuses_updates = false;
    graphs().before_destroy(exec_);
    graphs().on_instantiated(exec_, graph_, 0);
    launches_.clear();
  }
}

// Its copies go with the partitions.
TEST_F(ExecsTest, NoCopyOfAContextThatIsGoneIsLaunched) {
  const CUstream first = new_stream(false), unknown = the_gpu->create(false);
  go_to_partition({first});
  launch_graph(first);
  launch_graph(unknown);
  streams().before_release(0, true);
  EXPECT_EQ(the_execs.size(), 1u) << "the original";
  the_execs = {{exec_, kContext}};
  streams().on_retained(0, kContext);
  launch_graph(new_stream(false));
}

// Another thread launches the graph in a second stream while the first one is being destroyed.
TEST_F(ExecsTest, ALaunchInAnotherStreamMeanwhileIsTheLatestOne) {
  const CUstream first = new_stream(false), second = new_stream(false);
  go_to_partition({first, second});
  for (int i = 0; i < 50; ++i) {
    launch_graph(first);
    Stream& next = *streams().find(second, Flavor::kLegacy);
    known().lock.lock();
    std::atomic<bool> begins{false};
    std::thread other([&] {
      begins = true;
      graphs().forget_stream(*streams().find(first, Flavor::kLegacy));
    });
    while (!begins) std::this_thread::yield();
    for (int waits = 0; waits < 100; ++waits) std::this_thread::yield();
    known().last = &next;
    known().lock.unlock();
    other.join();
    ASSERT_EQ(known().last, &next);
  }
}

// The address of a graph comes again, and with it the event that its predecessor needed.
TEST_F(ExecsTest, AnEventThatEndedWithItsContextIsNotUsed) {
  for (const bool is_first_context : {true, false}) {
    const CUstream first = new_stream(false), second = new_stream(false);
    go_to_partition({first, second});
    launch_graph(first);
    keep_busy(true);
    destroy_with_graphs(first);
    move_to(2);
    launch_graph(second);
    EXPECT_TRUE(are_in_order());
    keep_busy(false);
    graphs().before_destroy(exec_);
    graphs().on_instantiated(exec_, graph_, 0);
    launches_.clear();
    if (!is_first_context) break;
    streams().before_release(0, true);
    the_events.clear();
    streams().on_retained(0, kContext);
  }
}

// A stream may be destroyed while another context is current, or none.
class ExecsTestInContext : public ExecsTest, public testing::WithParamInterface<CUcontext> {};

TEST_P(ExecsTestInContext, WhatRunsInADestroyedStreamIsWaitedFor) {
  const CUstream first = new_stream(false), second = new_stream(false);
  go_to_partition({first, second});
  launch_graph(first);
  keep_busy(true);
  current_context = GetParam();
  destroy_with_graphs(first);
  current_context = kContext;
  move_to(2);
  launch_graph(second);
  EXPECT_TRUE(are_in_order());
}

INSTANTIATE_TEST_SUITE_P(All, ExecsTestInContext, testing::Values(kContext, kOtherContext, nullptr),
                         [](const auto& made) {
                           return made.param == kContext        ? "ThatOfTheStream"
                                  : made.param == kOtherContext ? "Another"
                                                                : "None";
                         });

}  // namespace
}  // namespace gpushare::shim
