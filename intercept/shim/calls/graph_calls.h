// SPDX-License-Identifier: Apache-2.0
// Wrappers of functions by which executable graphs come, change, run and go. On the program's
// thread. Part of wrappers.cc.
#pragma once

#include <string_view>

#include "intercept/shim/calls/credit_calls.h"
#include "intercept/shim/calls/needs.h"
#include "intercept/shim/driver/in_context.h"
#include "intercept/shim/driver/lookup.h"
#include "intercept/shim/driver/table.h"
#include "intercept/shim/graphs/context_waits.h"
#include "intercept/shim/graphs/graphs.h"
#include "intercept/shim/streams/stream_use.h"

namespace gpushare::shim {

// --- they come and go ---------------------------------------------------------------------------

inline unsigned long long flags_among(unsigned long long flags) { return flags; }
// CUDA_GRAPH_INSTANTIATE_PARAMS begins with them.
inline unsigned long long flags_among(void* parameters) {
  return parameters == nullptr ? 0 : *static_cast<const unsigned long long*>(parameters);
}
// The first versions have no flags.
inline unsigned long long flags_among(CUgraphNode*, char*, size_t) { return 0; }

template <int index, class Signature>
struct Instantiated;
template <int index, class... Rest>
struct Instantiated<index, CUresult(CUgraphExec*, CUgraph, Rest...)> {
  static CUresult call(CUgraphExec* exec, CUgraph graph, Rest... rest) {
    const auto make = real<CUresult (*)(CUgraphExec*, CUgraph, Rest...)>(index);
    const CUresult result = make(exec, graph, rest...);
    if (result == CUDA_SUCCESS && exec != nullptr)
      if (Graphs* all = Graphs::get()) all->on_instantiated(*exec, graph, flags_among(rest...));
    return result;
  }
};

template <int index, class Signature>
struct ExecDestroyed {
  static CUresult call(CUgraphExec exec) {
    if (Graphs* all = Graphs::get()) all->before_destroy(exec);
    return real<CUresult (*)(CUgraphExec)>(index)(exec);
  }
};

// The program's function is called when no graph has its object any more.
template <int index, class Signature>
struct ObjectRetained;
template <int index, class... Rest>
struct ObjectRetained<index, CUresult(CUgraph, Rest...)> {
  static CUresult call(CUgraph graph, Rest... rest) {
    if (Graphs* all = Graphs::get()) all->note_object();
    return real<CUresult (*)(CUgraph, Rest...)>(index)(graph, rest...);
  }
};

// --- they change --------------------------------------------------------------------------------

// cuGraphExecUpdate: the nodes are those of another graph from now on. The driver refuses one whose
// kernels are in another place than those of the executable graph.
template <int index, class Signature>
struct ExecUpdated;
template <int index, class... Rest>
struct ExecUpdated<index, CUresult(CUgraphExec, CUgraph, Rest...)> {
  static CUresult call(CUgraphExec exec, CUgraph graph, Rest... rest) {
    const auto update = real<CUresult (*)(CUgraphExec, CUgraph, Rest...)>(index);
    const CUresult result = update(exec, graph, rest...);
    if (result == CUDA_SUCCESS)
      if (Graphs* all = Graphs::get()) all->on_updated(exec, graph);
    return result;
  }
};

// The driver takes a kernel whose parameters are set to the context that is current, and refuses
// that for one of an executable graph if it is another one. The program knows only the primary
// context, so it is set in the kernel's own.
template <class Call>
CUresult in_context_of(CUgraphNode node, const Call& call) {
  const GraphDriver* const driver = may_move() ? graph_driver() : nullptr;
  CUDA_KERNEL_NODE_PARAMS_v2 parameters{};
  if (driver == nullptr ||
      driver->cuGraphKernelNodeGetParams_v2(node, &parameters) != CUDA_SUCCESS ||
      parameters.ctx == nullptr)
    return call();
  const InContext in(*driver, parameters.ctx);
  return call();
}

// By the driver's name of a function for executable graphs: the one that does the same to a graph.
// Empty: there is none.
template <int index>
constexpr std::string_view twin_of() {
#define GS_TWIN(of_exec, of_graph) \
  if (index == kHook_##of_exec) return #of_graph
  GS_TWIN(cuGraphExecKernelNodeSetParams, cuGraphKernelNodeSetParams);
  GS_TWIN(cuGraphExecKernelNodeSetParams_v2, cuGraphKernelNodeSetParams_v2);
  GS_TWIN(cuGraphExecMemcpyNodeSetParams, cuGraphMemcpyNodeSetParams);
  GS_TWIN(cuGraphExecMemsetNodeSetParams, cuGraphMemsetNodeSetParams);
  GS_TWIN(cuGraphExecHostNodeSetParams, cuGraphHostNodeSetParams);
  GS_TWIN(cuGraphExecEventRecordNodeSetEvent, cuGraphEventRecordNodeSetEvent);
  GS_TWIN(cuGraphExecEventWaitNodeSetEvent, cuGraphEventWaitNodeSetEvent);
  GS_TWIN(cuGraphExecExternalSemaphoresSignalNodeSetParams,
          cuGraphExternalSemaphoresSignalNodeSetParams);
  GS_TWIN(cuGraphExecExternalSemaphoresWaitNodeSetParams,
          cuGraphExternalSemaphoresWaitNodeSetParams);
  GS_TWIN(cuGraphExecBatchMemOpNodeSetParams, cuGraphBatchMemOpNodeSetParams);
  GS_TWIN(cuGraphExecNodeSetParams, cuGraphNodeSetParams);
#undef GS_TWIN
  return {};
}

template <int index>
constexpr bool may_be_kernel =
    index == kHook_cuGraphExecKernelNodeSetParams ||
    index == kHook_cuGraphExecKernelNodeSetParams_v2 || index == kHook_cuGraphExecNodeSetParams;

// A node of an executable graph gets other parameters.
template <int index, class Signature>
struct ExecNodeSet;
template <int index, class Value, class... Rest>
struct ExecNodeSet<index, CUresult(CUgraphExec, CUgraphNode, Value, Rest...)> {
  static CUresult call(CUgraphExec exec, CUgraphNode node, Value value, Rest... rest) {
    const auto set = real<CUresult (*)(CUgraphExec, CUgraphNode, Value, Rest...)>(index);
    const auto of_exec = [&] { return set(exec, node, value, rest...); };
    CUresult result{};
    if constexpr (may_be_kernel<index>)
      result = in_context_of(node, of_exec);
    else
      result = of_exec();
    if (result == CUDA_SUCCESS)
      if (Graphs* all = Graphs::get())
        all->on_changed(exec, node, [&](CUgraphNode own) { return set_own(own, value); });
    return result;
  }

 private:
  static bool set_own(CUgraphNode own, Value value) {
    constexpr std::string_view kTwin = twin_of<index>();
    if constexpr (kTwin.empty()) return false;
    static constinit DriverFunction<CUresult (*)(CUgraphNode, Value)> twin(kTwin.data());
    const auto set = twin.get();
    return set != nullptr && in_context_of(own, [&] { return set(own, value); }) == CUDA_SUCCESS;
  }
};

// A node of a graph gets other parameters.
template <int index, class Signature>
struct NodeSet;
template <int index, class Value>
struct NodeSet<index, CUresult(CUgraphNode, Value)> {
  static CUresult call(CUgraphNode node, Value value) {
    const auto set = real<CUresult (*)(CUgraphNode, Value)>(index);
    return in_context_of(node, [&] { return set(node, value); });
  }
};

// --- they run -----------------------------------------------------------------------------------

// A launch of an executable graph in a stream: what is launched instead of it, if anything is. One
// thread at a time may be in a launch of the same graph.
class GraphUse {
 public:
  GraphUse(CUgraphExec handle, const StreamUse& use) : physical_(handle) {
    Graphs* const all = Graphs::get();
    exec_ = all == nullptr ? nullptr : all->find(handle);
    if (exec_ == nullptr) return;
    exec_->lock.lock();
    if (exec_->original != handle) {
      exec_->lock.unlock();
      exec_ = nullptr;
      return;
    }
    last_before_ = exec_->last.load(std::memory_order_relaxed);
    at_before_ = exec_->at;
    physical_ = all->choose(*exec_, use.stream(), use.physical());
  }
  ~GraphUse() {
    if (exec_ != nullptr) exec_->lock.unlock();
  }
  GraphUse(const GraphUse&) = delete;
  GraphUse& operator=(const GraphUse&) = delete;

  CUgraphExec physical() const { return physical_; }
  // Takes the driver's answer. After a refusal the latest launch is still the one before.
  CUresult note(CUresult result) {
    if (result == CUDA_SUCCESS || exec_ == nullptr) return result;
    exec_->last.store(last_before_, std::memory_order_relaxed);
    exec_->at = at_before_;
    return result;
  }
  // The driver has refused it as too large for the partition. Returns true if that was a copy; then
  // the original is to be launched instead, from now on.
  bool stays(const StreamUse& use) {
    if (exec_ == nullptr || physical_ == exec_->original) return false;
    physical_ = Graphs::get()->stay(*exec_, *use.stream(), use.physical());
    return true;
  }
  // Returns true if it must not be put into the stream of a partition: kernels of it are at home,
  // or not known. A graph within a graph there is sometimes not waited for by the stream (H200,
  // driver 580.159.04; a scene of tests/conformance).
  bool goes_home(const Stream& stream) const {
    if (exec_ == nullptr) return Streams::get()->launches_graphs_at_home(stream);
    return physical_ == exec_->original && exec_->is_at_home;
  }
  // Returns true if its kernels run elsewhere than the stream is.
  bool leaves(const Stream& stream) const {
    return exec_ != nullptr && exec_->at != stream.place.load(std::memory_order_relaxed);
  }

 private:
  CUgraphExec physical_;
  Exec* exec_;
  Stream* last_before_ = nullptr;
  Exec::Place at_before_ = Exec::kNowhere;
};

// Its arguments.
constexpr CUgraphExec exec_of(CUgraphExec exec, CUstream) { return exec; }

template <bool has_credit, int index, Flavor flavor>
CUresult launch_graph(CUresult (*driver)(CUgraphExec, CUstream), StreamUse& use,
                      CUgraphExec handle) {
  // The driver refuses it, so that nothing is to be chosen or noted.
  if (use.stream() != nullptr && Streams::get()->is_capturing(*use.stream()))
    return driver(handle, use.physical());
  GraphUse graph(handle, use);
  const auto run = [&](CUstream stream) {
    return graph.note(credited<has_credit, index, flavor>(
        stream, nullptr, [&] { return driver(graph.physical(), stream); }));
  };
  if (!use.is_away()) return run(use.physical());
  const auto run_chosen = [&] {
    if (graph.goes_home(*use.stream())) return use.at_home(run);
    note_graph(use.stream()->device->gpu);
    if (graph.leaves(*use.stream())) Streams::get()->count_at_home(*use.stream()->device);
    const CUresult result = run(use.physical());
    if (result == CUDA_SUCCESS) note_graph_away(*use.stream());
    return result;
  };
  const CUresult result = run_chosen();
  return is_too_large(result) && graph.stays(use) ? run_chosen() : result;
}

}  // namespace gpushare::shim
