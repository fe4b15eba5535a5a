// SPDX-License-Identifier: Apache-2.0
// The stand-in libcuda's functions for executable graphs.
#include "intercept/sim/libcuda/api/api.h"
#include "intercept/sim/libcuda/runtime/captures.h"

using namespace gpushare::standin;

// The flags have no effect: a graph has no memory of its own here, and nothing must be uploaded to
// the GPU.
CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  GS_CURRENT();
  if (const CUresult refused = runtime.captures().check_unsafe(); refused != CUDA_SUCCESS)
    return refused;
  const auto found = runtime.graphs.find(graph);
  if (exec == nullptr || !found) return CUDA_ERROR_INVALID_VALUE;
  auto made = GraphExec::make(*found);
  if (!made) return CUDA_ERROR_INVALID_VALUE;
  *exec = runtime.execs.add(std::move(made));
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  Runtime* runtime = Runtime::get();
  if (runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  return runtime->execs.remove(exec) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                              CUgraphExecUpdateResultInfo_v1* result) {
  GS_CURRENT();
  const auto found = runtime.execs.find(exec);
  const auto from = runtime.graphs.find(graph);
  if (!found || !from || result == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *result = {found->update(*from), nullptr, nullptr};
  return result->result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS
                                                        : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  GS_CURRENT();
  const auto found = runtime.execs.find(exec);
  if (!found || parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto made = make_kernel(runtime, sms_of(now), *parameters);
  return made.result == CUDA_SUCCESS ? found->set(node, made.operation) : made.result;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
  GS_CURRENT();
  if (!runtime.execs.find(exec)) return CUDA_ERROR_INVALID_VALUE;
  return runtime.stream(context, stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  GS_CURRENT();
  const auto found = runtime.execs.find(exec);
  const auto in = runtime.stream(context, stream);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  if (!in) return CUDA_ERROR_INVALID_HANDLE;
  if (runtime.captures().status(*in) != CU_STREAM_CAPTURE_STATUS_NONE) {
    runtime.captures().refuse(*in);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return found->launch(runtime, now.context, *in).first;
}
