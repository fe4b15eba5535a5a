// SPDX-License-Identifier: Apache-2.0
// Graphs for which the driver does not wait. A wait for a whole context, cuCtxSynchronize, or one
// by the way, as in cuMemFree, waits for all work of the context, but not for a graph that was
// launched in a stream of a green context, unless other work is behind it in that stream (H200,
// driver 580.159.04; bench/results/waits.jsonl). A program knows nothing of green contexts, so
// before such calls the shim waits for the graphs that it has put there. Any thread.
#pragma once

#include "intercept/shim/streams/streams.h"

namespace gpushare::shim {

// The driver has taken a graph in this stream, which is away. REQUIRES: the caller is one of the
// stream's users.
inline void note_graph_away(Stream& stream) {
  stream.graphs.fetch_add(1, std::memory_order_release);
  std::atomic<bool>& has_graphs = stream.device->has_graphs;
  if (!has_graphs.load(std::memory_order_relaxed))
    has_graphs.store(true, std::memory_order_release);
}

// Waits for all of them that were launched before. REQUIRES: the caller uses no stream.
void wait_for_graphs(Streams& all, Device& device);

// Of the device of that primary context (null: of the current one).
inline void before_context_wait(Streams& all, CUcontext context) {
  Device* const device = all.device_in(context);
  if (device != nullptr && device->has_graphs.load(std::memory_order_acquire))
    wait_for_graphs(all, *device);
}

}  // namespace gpushare::shim
