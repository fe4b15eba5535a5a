// SPDX-License-Identifier: Apache-2.0
// The driver's graphs in tests: each has one kernel. As the real driver it knows no order between
// two executable graphs, and refuses an event of another context than the stream's.
#pragma once

#include <cstdint>
#include <map>

#include "intercept/shim/graphs/graph_driver.h"
#include "tests/intercept/shim/streams/ordering_driver.h"

namespace gpushare::shim {

// The handle of a graph and that of its node are numbers of it.
struct FakeGraph {
  CUcontext context;
  CUgraphNode original;  // the node of which its own is a copy
};
extern std::map<CUgraph, FakeGraph> the_graphs;
extern std::map<CUgraphExec, CUcontext> the_execs;
extern std::map<CUevent, CUcontext> the_events;  // those of graphs, with their contexts
extern bool refuses_updates;
extern uintptr_t next_handle;

template <class Handle>
Handle new_handle() {
  return reinterpret_cast<Handle>(next_handle += 64);
}
CUgraph new_graph(CUcontext context, CUgraphNode original = nullptr);

}  // namespace gpushare::shim
