// SPDX-License-Identifier: Apache-2.0
// The functions of the driver by which a graph is made again for another partition. They are apart
// from driver.h, because a driver without them (before 12.3) is good enough for all else.
// Any thread. graph_driver() is a seam: tests bring another.
#pragma once

#include "intercept/shim/driver/driver_types.h"

// A GraphDriver of the functions to which a program is linked.
#define GS_LINKED_GRAPH_DRIVER \
  ::gpushare::shim::GraphDriver { GS_GRAPH_FUNCTIONS(GS_LINKED_FUNCTION) }
#define GS_LINKED_FUNCTION(name, parameters) .name = ::name,

namespace gpushare::shim {

struct GraphDriver {
#define GS_GRAPH_FUNCTIONS(X)                                                                   \
  X(cuCtxGetCurrent, (CUcontext*))                                                              \
  X(cuCtxPushCurrent_v2, (CUcontext))                                                           \
  X(cuCtxPopCurrent_v2, (CUcontext*))                                                           \
  X(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode*))                                  \
  X(cuEventCreate, (CUevent*, unsigned))                                                        \
  X(cuEventDestroy_v2, (CUevent))                                                               \
  X(cuEventQuery, (CUevent))                                                                    \
  X(cuEventRecord, (CUevent, CUstream))                                                         \
  X(cuStreamWaitEvent, (CUstream, CUevent, unsigned))                                           \
  X(cuStreamIsCapturing, (CUstream, CUstreamCaptureStatus*))                                    \
  X(cuGraphClone, (CUgraph*, CUgraph))                                                          \
  X(cuGraphDestroy, (CUgraph))                                                                  \
  X(cuGraphGetNodes, (CUgraph, CUgraphNode*, size_t*))                                          \
  X(cuGraphNodeGetType, (CUgraphNode, CUgraphNodeType*))                                        \
  X(cuGraphNodeFindInClone, (CUgraphNode*, CUgraphNode, CUgraph))                               \
  X(cuGraphKernelNodeGetParams_v2, (CUgraphNode, CUDA_KERNEL_NODE_PARAMS_v2*))                  \
  X(cuGraphKernelNodeGetAttribute, (CUgraphNode, CUlaunchAttributeID, CUlaunchAttributeValue*)) \
  X(cuGraphKernelNodeSetAttribute,                                                              \
    (CUgraphNode, CUlaunchAttributeID, const CUlaunchAttributeValue*))                          \
  X(cuGraphAddKernelNode_v2,                                                                    \
    (CUgraphNode*, CUgraph, const CUgraphNode*, size_t, const CUDA_KERNEL_NODE_PARAMS_v2*))     \
  X(cuGraphGetEdges_v2, (CUgraph, CUgraphNode*, CUgraphNode*, CUgraphEdgeData*, size_t*))       \
  X(cuGraphAddDependencies_v2,                                                                  \
    (CUgraph, const CUgraphNode*, const CUgraphNode*, const CUgraphEdgeData*, size_t))          \
  X(cuGraphDestroyNode, (CUgraphNode))                                                          \
  X(cuGraphInstantiateWithFlags, (CUgraphExec*, CUgraph, unsigned long long))                   \
  X(cuGraphExecUpdate_v2, (CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo_v1*))              \
  X(cuGraphExecDestroy, (CUgraphExec))
  GS_FUNCTIONS(GS_GRAPH_FUNCTIONS)
};

// Null: the driver lacks one of them.
const GraphDriver* graph_driver();

}  // namespace gpushare::shim
