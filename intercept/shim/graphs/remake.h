// SPDX-License-Identifier: Apache-2.0
// A graph is made again with its kernels in another context. The driver keeps a kernel of a graph
// where it was captured, or where it was added: it ignores another context that is set later, and
// refuses to update an executable graph by one whose kernels are elsewhere (H200, driver
// 580.159.04, bench/results/graphs.jsonl). But a kernel that is added while a context is current
// runs there. So all kernels are added anew, with their parameters, attributes and edges, and the
// old ones go. Everything else of the graph is the driver's own copy.
//
// Any thread, one at a time for each graph. It must be allowed in captures (in_context.h).
#pragma once

#include "intercept/shim/graphs/graph_driver.h"

namespace gpushare::shim {

// What the kernels of a graph say of the places where they run.
struct GraphAbout {
  // It has only nodes that a copy can have: kernels, copies, fills, host functions, events, waits
  // for memory and semaphores; no graph within it, no memory of its own, no condition, and no
  // kernel that another kernel may change.
  bool can_be_remade = false;
  // All of its kernels were visited; a graph within it, or one behind a condition, has others.
  bool is_known = false;
};
// Calls `visit(context)` with the context of each kernel; one that returns false ends the search,
// and the graph cannot be remade.
using VisitContext = bool (*)(void* data, CUcontext context);
GraphAbout about_graph(const GraphDriver& driver, CUgraph graph, VisitContext visit, void* data);

// Returns a copy of the graph with its kernels in `there`; null: the driver refuses. The caller
// destroys it. Takes some microseconds for each kernel.
CUgraph remake(const GraphDriver& driver, CUgraph graph, CUcontext there);

}  // namespace gpushare::shim
