// SPDX-License-Identifier: Apache-2.0
// Wrappers of functions by which a stream begins and ends to capture a graph, and by which a graph
// gets a kernel or another graph as a node. Part of wrappers.cc.
#pragma once

#include <cstddef>

#include "intercept/shim/driver/table.h"
#include "intercept/shim/graphs/graphs.h"
#include "intercept/shim/iterations/progress.h"
#include "intercept/shim/streams/stream_use.h"

namespace gpushare::shim {

// Of a call that names the default stream: only a thread's own captures.
inline CUstream capturing_of(const StreamUse& use) {
  return use.handle() == nullptr ? GS_CU_STREAM_PER_THREAD : use.handle();
}

// A capture begins after the streams went to where the process captures its graphs.
template <int index, class Signature>
struct CaptureBegun;
template <int index, class... Rest>
struct CaptureBegun<index, CUresult(CUstream, Rest...)> {
  // Another thread may take the stream away again before it is in use, or use it itself; then it is
  // brought there once more, so often at most.
  static constexpr int kMostTries = 1000;

  static CUresult call(CUstream stream, Rest... rest) {
    Streams* const all = Streams::get();
    Stream* const known = all == nullptr ? nullptr : all->find(stream, flavor_of(index));
    // The driver refuses to capture the legacy stream, so it is asked for the legacy stream itself.
    if (known != nullptr && known->kind.load(std::memory_order_relaxed) == Stream::Kind::kLegacy)
      return real<CUresult (*)(CUstream, Rest...)>(index)(stream, rest...);
    if (known != nullptr)
      if (Graphs* graphs = Graphs::get()) graphs->forget_stream(*known);
    for (int tries = 1;; ++tries) {
      if (known != nullptr && tries < kMostTries) all->before_capture(*known);
      const StreamUse use(stream, flavor_of(index), Use::kOperation);
      if (known == nullptr || tries == kMostTries || all->is_at_captures(*known))
        return call_in(use, rest...);
    }
  }

 private:
  static CUresult call_in(const StreamUse& use, Rest... rest) {
    const auto begin = [&] {
      return real<CUresult (*)(CUstream, Rest...)>(index)(use.physical(), rest...);
    };
    Streams* const all = Streams::get();
    const CUresult result = all != nullptr && use.stream() != nullptr
                                ? all->begin_capture(*use.stream(), begin)
                                : begin();
    if (all != nullptr && use.stream() == nullptr && result == CUDA_SUCCESS)
      all->begin_capture(capturing_of(use));
    if (result == CUDA_SUCCESS)
      if (Progress* progress = Progress::get()) progress->begin_capture();
    return result;
  }
};

template <int index, class Signature>
struct CaptureEnded {
  static CUresult call(CUstream stream, CUgraph* graph) {
    StreamUse use(stream, flavor_of(index), Use::kWait);
    const CUresult result = real<CUresult (*)(CUstream, CUgraph*)>(index)(use.physical(), graph);
    if (Streams* all = Streams::get()) {
      if (use.stream() != nullptr)
        all->end_capture(*use.stream());
      else
        all->end_capture(capturing_of(use));
    }
    if (result != CUDA_ERROR_ILLEGAL_STATE)  // that says that no capture had begun
      if (Progress* all = Progress::get()) all->end_capture();
    return result;
  }
};

// Before a wait for an event, by which a stream may join a capture.
inline void before_joining(CUstream handle, CUevent event, Flavor flavor) {
  Streams* const all = Streams::get();
  if (all == nullptr || !all->is_any_capturing()) return;
  Stream* const known = all->find(handle, flavor);
  if (known == nullptr || all->is_capturing(*known)) return;
  if (Graphs* graphs = Graphs::get()) graphs->forget_stream(*known);
  all->before_joining(*known, event);
}

// After an event was recorded.
inline void after_recording(const StreamUse& use, CUevent event) {
  Streams* const all = Streams::get();
  if (all != nullptr && all->is_any_capturing()) all->note_recorded(use.stream(), event);
}

// CUgraphNodeParams, of a node of CU_GRAPH_NODE_TYPE_CONDITIONAL.
struct ConditionalNode {
  CUgraphNodeType type;
  int reserved[3];
  uint64_t handle;
  unsigned kind, size;
  CUgraph* graphs;  // the driver writes it
  CUcontext context;
};
static_assert(offsetof(ConditionalNode, context) == 40);

// A node is added by hand: cuGraphAddKernelNode, cuGraphAddChildGraphNode, and cuGraphAddNode,
// whose node parameters begin with the node's type.
template <int index, class Signature>
struct GraphNode;
template <int index, class... Parameters>
struct GraphNode<index, CUresult(Parameters...)> {
  template <class Other>
  static bool is_concerned(const Other&) {
    return false;
  }
  static bool is_concerned(CUgraph) { return true; }
  static bool is_concerned(const void*) { return true; }  // parameters of a kernel
  static bool is_concerned(const CUDA_KERNEL_NODE_PARAMS_v2*) { return true; }
  static bool is_concerned(void* parameters) {
    if (parameters == nullptr) return false;
    const auto type = *static_cast<const CUgraphNodeType*>(parameters);
    return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_GRAPH;
  }
  template <class Other>
  static ConditionalNode* conditional_of(const Other&) {
    return nullptr;
  }
  static ConditionalNode* conditional_of(void* parameters) {
    auto* const node = static_cast<ConditionalNode*>(parameters);
    return node != nullptr && node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL ? node : nullptr;
  }
  static CUresult call(Parameters... arguments) {
    bool is_any = false;
    ConditionalNode* conditional = nullptr;
    ((is_any = is_concerned(arguments), conditional = conditional_of(arguments)), ...);
    Streams* const all = Streams::get();  // the last parameter has decided
    if (is_any && all != nullptr) all->note_built_graph();
    const auto add = real<CUresult (*)(Parameters...)>(index);
    if (all == nullptr || conditional == nullptr) return add(arguments...);
    // The driver also writes into what it is given, so that is not copied.
    CUcontext const given = conditional->context;
    conditional->context = all->context_for_condition(given);
    const CUresult result = add(arguments...);
    conditional->context = given;
    return result;
  }
};

template <int index, class Signature>
struct Condition {
  static CUresult call(uint64_t* handle, CUgraph graph, CUcontext context, unsigned value,
                       unsigned flags) {
    if (Streams* all = Streams::get()) context = all->context_for_condition(context);
    return real<CUresult (*)(uint64_t*, CUgraph, CUcontext, unsigned, unsigned)>(index)(
        handle, graph, context, value, flags);
  }
};

}  // namespace gpushare::shim
