// SPDX-License-Identifier: Apache-2.0
#include "tests/intercept/shim/streams/fake_graphs.h"

#include <utility>

namespace gpushare::shim {

std::map<CUgraph, FakeGraph> the_graphs;
std::map<CUgraphExec, CUcontext> the_execs;
std::map<CUevent, CUcontext> the_events;
bool refuses_updates;
uintptr_t next_handle;

CUgraph new_graph(CUcontext context, CUgraphNode original) {
  const auto made = new_handle<CUgraph>();
  the_graphs[made] = {context, original};
  return made;
}

namespace {

CUgraph graph_of(CUgraphNode node) { return reinterpret_cast<CUgraph>(node); }
CUgraphNode node_of(CUgraph graph) { return reinterpret_cast<CUgraphNode>(graph); }

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

}  // namespace

const GraphDriver* graph_driver() { return &kGraphDriver; }

}  // namespace gpushare::shim
