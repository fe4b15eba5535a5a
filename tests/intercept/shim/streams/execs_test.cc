// SPDX-License-Identifier: Apache-2.0
// Launches of one executable graph run one after the other, whichever streams they are in, wherever
// these are, and whatever becomes of them. Over a driver of graphs with one kernel each, which, as
// the real one, knows no order between two executable graphs, and refuses an event of another
// context than the stream's.
#include <random>
#include <thread>

#include "intercept/shim/driver/in_context.h"
#include "intercept/shim/graphs/context_waits.h"
#include "intercept/shim/graphs/graphs.h"
#include "tests/intercept/shim/streams/streams_rig.h"

namespace gpushare::shim {
namespace {

const CUcontext kOtherContext = reinterpret_cast<CUcontext>(uintptr_t{0x700});

// The handle of a graph and that of its node are numbers of it.
struct FakeGraph {
  CUcontext context;
  CUgraphNode original;  // the node of which its own is a copy
};
std::map<CUgraph, FakeGraph> the_graphs;
std::map<CUgraphExec, CUcontext> the_execs;
std::map<CUevent, CUcontext> the_events;  // those of graphs, with their contexts
std::map<CUgraphExec, Work> launched;     // of each: its launches and all before them
bool refuses_updates;
uintptr_t next_handle;

template <class Handle>
Handle new_handle() {
  return reinterpret_cast<Handle>(next_handle += 64);
}
CUgraph graph_of(CUgraphNode node) { return reinterpret_cast<CUgraph>(node); }
CUgraphNode node_of(CUgraph graph) { return reinterpret_cast<CUgraphNode>(graph); }

CUgraph new_graph(CUcontext context, CUgraphNode original = nullptr) {
  const auto made = new_handle<CUgraph>();
  the_graphs[made] = {context, original};
  return made;
}

std::map<CUcontext, CUcontext> pushed;  // by the one that was current after that: the one before

constinit const GraphDriver kGraphDriver{
    .cuCtxGetCurrent = [](CUcontext* now) { return *now = current_context, CUDA_SUCCESS; },
    .cuCtxPushCurrent_v2 =
        [](CUcontext context) {
          pushed[context] = std::exchange(current_context, context);
          return CUDA_SUCCESS;
        },
    .cuCtxPopCurrent_v2 =
        [](CUcontext* gone) {
          *gone = current_context;
          current_context = pushed.at(*gone);
          return CUDA_SUCCESS;
        },
    .cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; },
    .cuEventCreate =
        [](CUevent* event, unsigned) {
          if (current_context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
          the_events[*event = the_gpu->new_event()] = current_context;
          return CUDA_SUCCESS;
        },

    .cuEventDestroy_v2 = [](CUevent event) { return the_events.erase(event), CUDA_SUCCESS; },
    .cuEventQuery =
        [](CUevent event) { return the_gpu->is_done(event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; },
    .cuEventRecord =
        [](CUevent event, CUstream stream) {
          if (!the_events.contains(event) || the_events[event] != kContext)
            return CUDA_ERROR_INVALID_HANDLE;
          return the_gpu->record(event, stream), CUDA_SUCCESS;
        },
    .cuStreamWaitEvent = [](CUstream stream, CUevent event,
                            unsigned) { return the_gpu->wait(stream, event), CUDA_SUCCESS; },
    .cuStreamIsCapturing =
        [](CUstream, CUstreamCaptureStatus* status) {
          return *status = CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
        },
    .cuGraphClone =
        [](CUgraph* clone, CUgraph graph) {
          *clone = new_graph(the_graphs.at(graph).context, node_of(graph));
          return CUDA_SUCCESS;
        },
    .cuGraphDestroy = [](CUgraph graph) { return the_graphs.erase(graph), CUDA_SUCCESS; },
    .cuGraphGetNodes =
        [](CUgraph graph, CUgraphNode* nodes, size_t* count) {
          *count = 1;
          if (nodes != nullptr) *nodes = node_of(graph);
          return CUDA_SUCCESS;
        },
    .cuGraphNodeGetType =
        [](CUgraphNode, CUgraphNodeType* type) {
          return *type = CU_GRAPH_NODE_TYPE_KERNEL, CUDA_SUCCESS;
        },
    .cuGraphNodeFindInClone =
        [](CUgraphNode* node, CUgraphNode original, CUgraph clone) {
          if (the_graphs.at(clone).original != original) return CUDA_ERROR_INVALID_VALUE;
          return *node = node_of(clone), CUDA_SUCCESS;
        },
    .cuGraphKernelNodeGetParams_v2 =
        [](CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
          *parameters = {};
          parameters->ctx = the_graphs.at(graph_of(node)).context;
          return CUDA_SUCCESS;
        },
    .cuGraphKernelNodeGetAttribute =
        [](CUgraphNode, CUlaunchAttributeID, CUlaunchAttributeValue*) {
          return CUDA_ERROR_INVALID_VALUE;
        },
    .cuGraphKernelNodeSetAttribute =
        [](CUgraphNode, CUlaunchAttributeID, const CUlaunchAttributeValue*) {
          return CUDA_ERROR_INVALID_VALUE;
        },
    // In place of the only one, which is destroyed later.
    .cuGraphAddKernelNode_v2 =
        [](CUgraphNode* node, CUgraph graph, const CUgraphNode*, size_t,
           const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
          the_graphs.at(graph).context = parameters->ctx;
          return *node = node_of(graph), CUDA_SUCCESS;
        },
    .cuGraphGetEdges_v2 = [](CUgraph, CUgraphNode*, CUgraphNode*, CUgraphEdgeData*,
                             size_t* count) { return *count = 0, CUDA_SUCCESS; },
    .cuGraphAddDependencies_v2 = [](CUgraph, const CUgraphNode*, const CUgraphNode*,
                                    const CUgraphEdgeData*, size_t) { return CUDA_SUCCESS; },
    .cuGraphDestroyNode = [](CUgraphNode) { return CUDA_SUCCESS; },
    .cuGraphInstantiateWithFlags =
        [](CUgraphExec* exec, CUgraph graph, unsigned long long) {
          *exec = new_handle<CUgraphExec>();
          the_execs[*exec] = the_graphs.at(graph).context;
          return CUDA_SUCCESS;
        },
    .cuGraphExecUpdate_v2 =
        [](CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo_v1*) {
          return refuses_updates || the_execs.at(exec) != the_graphs.at(graph).context
                     ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
                     : CUDA_SUCCESS;
        },
    .cuGraphExecDestroy = [](CUgraphExec exec) { return the_execs.erase(exec), CUDA_SUCCESS; },
};

class ExecsTest : public StreamsTest {
 protected:
  ExecsTest() {
    the_graphs.clear();
    the_execs.clear();
    the_events.clear();
    launched.clear();
    refuses_updates = false;
    next_handle = 0x10000;
    graph_ = new_graph(kContext);
    kGraphDriver.cuGraphInstantiateWithFlags(&exec_, graph_, 0);
    graphs().on_instantiated(exec_, graph_, 0);
  }
  ~ExecsTest() override {
    the_gpu->is_busy = {};
    current_context = kContext;
  }

  static Graphs& graphs() { return *Graphs::get(); }
  Exec& known() const { return *graphs().find(exec_); }

  // As the wrapper of cuGraphLaunch does. Returns the launch's number.
  size_t launch_graph(CUstream stream) {
    the_time += kLongNs;
    Call call(*this, stream);
    const Locked locked(known().lock);
    CUgraphExec const chosen = graphs().choose(known(), call.known(), call.physical());
    EXPECT_TRUE(the_execs.contains(chosen));
    call.put(launched[chosen]);
    if (call.is_away()) {
      note_graph_away(*call.known());
      away_.push_back(call.number());
    }
    Work all = call.before();
    all.add(call.number());
    launched[chosen].add(all);
    launches_.push_back(call.number());
    return call.number();
  }
  void destroy_with_graphs(CUstream stream) {
    graphs().forget_stream(*streams().find(stream, Flavor::kLegacy));
    destroy(stream);
  }
  // With the same graph, which was not launched yet.
  void begin_anew() {
    start_over();
    graphs().on_instantiated(exec_, graph_, 0);
    away_.clear();
  }
  // The launches of the graph come one after the other.
  bool are_in_order() const {
    for (size_t i = 1; i < launches_.size(); ++i)
      if (!is_first(launches_[i - 1], launches_[i])) return false;
    return true;
  }
  // Something runs that does not end, until this is called with false.
  static void keep_busy(bool is_busy) {
    the_gpu->is_busy = is_busy ? std::function([] { return true; }) : std::function<bool()>();
  }
  // All streams have stand-ins, and are in the first partition.
  void go_to_partition(const std::vector<CUstream>& all) { visit(kThere, all); }
  // After which a copy may be made again.
  static constexpr uint64_t kLongNs = 3'600'000'000'000;
  static constexpr uint64_t kThere[] = {1, 2, 1};

  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  std::vector<size_t> launches_;
  std::vector<size_t> away_;  // those in a stream that was away
};

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

const GraphDriver* graph_driver() { return &kGraphDriver; }

}  // namespace gpushare::shim
