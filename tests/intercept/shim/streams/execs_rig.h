// SPDX-License-Identifier: Apache-2.0
// An executable graph, launched as the wrapper of cuGraphLaunch does, in streams that move.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "intercept/shim/driver/in_context.h"
#include "intercept/shim/graphs/context_waits.h"
#include "intercept/shim/graphs/graphs.h"
#include "tests/intercept/shim/streams/fake_graphs.h"
#include "tests/intercept/shim/streams/streams_rig.h"

namespace gpushare::shim {

class ExecsTest : public StreamsTest {
 protected:
  ExecsTest() {
    the_graphs.clear();
    the_execs.clear();
    the_events.clear();
    refuses_updates = false;
    next_handle = 0x10000;
    graph_ = new_graph(kContext);
    graph_driver()->cuGraphInstantiateWithFlags(&exec_, graph_, 0);
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
    call.put(launched_[chosen]);
    if (call.is_away()) {
      note_graph_away(*call.known());
      away_.push_back(call.number());
    }
    Work all = call.before();
    all.add(call.number());
    launched_[chosen].add(all);
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
  std::map<CUgraphExec, Work> launched_;  // of each: its launches and all before them
  std::vector<size_t> launches_;
  std::vector<size_t> away_;  // those in a stream that was away
};

}  // namespace gpushare::shim
