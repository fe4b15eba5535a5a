// SPDX-License-Identifier: Apache-2.0
// The stand-in libcuda's functions for graphs and their nodes.
#include <algorithm>

#include "intercept/sim/libcuda/api/api.h"
#include "intercept/sim/libcuda/runtime/graph.h"

using namespace gpushare::standin;

namespace {

CUresult add(Runtime& runtime, CUgraphNode* handle, CUgraph graph, const CUgraphNode* dependencies,
             size_t count, const Made& made) {
  const auto found = runtime.graphs.find(graph);
  if (handle == nullptr || !found || (count != 0 && dependencies == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  if (made.result != CUDA_SUCCESS) return made.result;
  std::vector<std::shared_ptr<Node>> after;
  for (size_t i = 0; i < count; ++i) {
    const auto node = runtime.nodes.find(dependencies[i]);
    if (!node || node->graph != found.get()) return CUDA_ERROR_INVALID_VALUE;
    if (std::ranges::find(after, node) != after.end()) return CUDA_ERROR_INVALID_VALUE;
    after.push_back(node);
  }
  *handle = found->add(made.operation, std::move(after))->handle;
  return CUDA_SUCCESS;
}

// Accepts one row of bytes, which is all that the stand-in copies: no arrays and no further rows.
Made copy_of(Runtime& runtime, const Context& context, const CUDA_MEMCPY3D_v2& parameters) {
  const auto& p = parameters;
  const auto is_linear = [](CUmemorytype type) {
    return type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_DEVICE;
  };
  if (!is_linear(p.srcMemoryType) || !is_linear(p.dstMemoryType) || p.Height != 1 || p.Depth != 1 ||
      p.srcY + p.srcZ + p.dstY + p.dstZ != 0)
    return {CUDA_ERROR_NOT_SUPPORTED, {}};
  const bool is_from_host = p.srcMemoryType == CU_MEMORYTYPE_HOST,
             is_to_host = p.dstMemoryType == CU_MEMORYTYPE_HOST;
  const void* from = is_from_host ? p.srcHost : reinterpret_cast<const void*>(p.srcDevice);
  void* to = is_to_host ? p.dstHost : reinterpret_cast<void*>(p.dstDevice);
  return make_copy(runtime, all_sms(context), static_cast<std::byte*>(to) + p.dstXInBytes,
                   static_cast<const std::byte*>(from) + p.srcXInBytes, p.WidthInBytes,
                   is_from_host ? Direction::kHostToDevice
                   : is_to_host ? Direction::kDeviceToHost
                                : Direction::kDeviceToDevice,
                   false);
}

// Gives a list of handles and its length; only the length when `nodes` is null.
template <class Matches>
CUresult list(CUgraph graph, CUgraphNode* nodes, size_t* count, const Matches& matches) {
  Runtime* runtime = Runtime::get();
  if (runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const auto found = runtime->graphs.find(graph);
  if (!found || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> all;
  for (const auto& node : found->nodes())
    if (matches(*node)) all.push_back(node->handle);
  if (nodes != nullptr) {
    for (size_t i = 0; i < *count; ++i) nodes[i] = i < all.size() ? all[i] : nullptr;
  }
  *count = nodes == nullptr ? all.size() : std::min(*count, all.size());
  return CUDA_SUCCESS;
}

std::shared_ptr<Node> kernel_node(CUgraphNode handle) {
  const Runtime* runtime = Runtime::get();
  const auto found = runtime == nullptr ? nullptr : runtime->nodes.find(handle);
  return found && found->operation->kernel() != nullptr ? found : nullptr;
}

bool is_of_nodes(CUlaunchAttributeID attribute) {
  constexpr unsigned kOfNodes[] = {1, 2, 4, 5, 8, 9, 10, 13, 14};
  return std::ranges::find(kOfNodes, static_cast<unsigned>(attribute)) != std::end(kOfNodes);
}

}  // namespace

// --- graphs -------------------------------------------------------------------------------------

CUresult cuGraphCreate(CUgraph* graph, unsigned flags) {
  Runtime* runtime = Runtime::get();
  if (runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (graph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *graph = runtime->graphs.add(std::make_shared<Graph>(*runtime));
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
  Runtime* runtime = Runtime::get();
  if (runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  return runtime->graphs.remove(graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphClone(CUgraph* clone, CUgraph graph) {
  Runtime* runtime = Runtime::get();
  if (runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const auto found = runtime->graphs.find(graph);
  if (clone == nullptr || !found) return CUDA_ERROR_INVALID_VALUE;
  *clone = runtime->graphs.add(found->clone());
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode* node, CUgraphNode original, CUgraph clone) {
  Runtime* runtime = Runtime::get();
  if (runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const auto found = runtime->graphs.find(clone);
  if (node == nullptr || !found) return CUDA_ERROR_INVALID_VALUE;
  const auto copy = std::ranges::find(found->nodes(), original, &Node::original);
  if (copy == found->nodes().end()) return CUDA_ERROR_INVALID_VALUE;
  *node = (*copy)->handle;
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  Runtime* runtime = Runtime::get();
  if (runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const auto found = runtime->nodes.find(node);
  if (!found || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = found->operation->type();
  return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return list(graph, nodes, count, [](const Node&) { return true; });
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return list(graph, nodes, count, [](const Node& node) { return node.dependencies.empty(); });
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to,
                            CUgraphEdgeData* data, size_t* count) {
  Runtime* runtime = Runtime::get();
  if (runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const auto found = runtime->graphs.find(graph);
  if (!found || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  size_t there = 0;
  for (const auto& node : found->nodes())
    for (const auto& each : node->dependencies) {
      if (from != nullptr && there < *count) {
        from[there] = each->handle;
        to[there] = node->handle;
        if (data != nullptr) data[there] = {};
      }
      ++there;
    }
  *count = from == nullptr ? there : std::min(*count, there);
  return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData*, size_t count) {
  Runtime* runtime = Runtime::get();
  if (runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const auto found = runtime->graphs.find(graph);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const auto first = runtime->nodes.find(from[i]), second = runtime->nodes.find(to[i]);
    if (!first || !second || first->graph != found.get() || second->graph != found.get() ||
        std::ranges::find(second->dependencies, first) != second->dependencies.end())
      return CUDA_ERROR_INVALID_VALUE;
    second->dependencies.push_back(first);
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroyNode(CUgraphNode node) {
  Runtime* runtime = Runtime::get();
  if (runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const auto found = runtime->nodes.find(node);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  found->graph->remove(found);
  return CUDA_SUCCESS;
}

// --- nodes --------------------------------------------------------------------------------------

CUresult cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  GS_CURRENT();
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add(runtime, node, graph, dependencies, count,
             make_kernel(runtime, sms_of(now), *parameters));
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  const auto found = kernel_node(node);
  if (!found || parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const KernelCall& call = *found->operation->kernel();
  *parameters = {.func = call.function,
                 .gridDimX = call.grid.x,
                 .gridDimY = call.grid.y,
                 .gridDimZ = call.grid.z,
                 .blockDimX = call.block.x,
                 .blockDimY = call.block.y,
                 .blockDimZ = call.block.z,
                 .sharedMemBytes = 0,
                 .kernelParams = const_cast<void**>(call.pointers.data()),
                 .extra = nullptr,
                 .kern = nullptr,
                 .ctx = call.context};
  return CUDA_SUCCESS;
}

// The node goes to the context that is current, as with the driver of an H200.
CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node,
                                       const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  GS_CURRENT();
  const auto found = kernel_node(node);
  if (!found || parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto made = make_kernel(runtime, sms_of(now), *parameters);
  if (made.result == CUDA_SUCCESS) found->operation = made.operation;
  return made.result;
}

// Attributes have no effect in the simulation; those that the driver of an H200 knows are kept.
CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUlaunchAttributeID attribute,
                                       CUlaunchAttributeValue* value) {
  const auto found = kernel_node(node);
  if (!found || value == nullptr || !is_of_nodes(attribute)) return CUDA_ERROR_INVALID_VALUE;
  const auto set = found->attributes.find(attribute);
  *value = set == found->attributes.end() ? CUlaunchAttributeValue{} : set->second;
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUlaunchAttributeID attribute,
                                       const CUlaunchAttributeValue* value) {
  const auto found = kernel_node(node);
  if (!found || value == nullptr || !is_of_nodes(attribute)) return CUDA_ERROR_INVALID_VALUE;
  found->attributes[attribute] = *value;
  return CUDA_SUCCESS;
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                              size_t count, const CUDA_MEMCPY3D_v2* parameters, CUcontext) {
  GS_CURRENT();
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add(runtime, node, graph, dependencies, count, copy_of(runtime, context, *parameters));
}

CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                              size_t count, const CUDA_MEMSET_NODE_PARAMS_v1* parameters,
                              CUcontext) {
  GS_CURRENT();
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (parameters->height != 1) return CUDA_ERROR_NOT_SUPPORTED;
  return add(runtime, node, graph, dependencies, count,
             make_fill(runtime, all_sms(context), parameters->dst, parameters->value,
                       parameters->elementSize, parameters->width));
}

CUresult cuGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                            size_t count, const CUDA_HOST_NODE_PARAMS_v1* parameters) {
  GS_CURRENT();
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add(runtime, node, graph, dependencies, count,
             make_host_function(parameters->fn, parameters->userData));
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                  size_t count, CUgraph child) {
  GS_CURRENT();
  const auto found = runtime.graphs.find(child);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  return add(runtime, node, graph, dependencies, count,
             {CUDA_SUCCESS, make_child(found->operations())});
}

CUresult cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                             size_t count) {
  GS_CURRENT();
  return add(runtime, node, graph, dependencies, count, {CUDA_SUCCESS, make_nothing()});
}

CUresult cuGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph,
                                   const CUgraphNode* dependencies, size_t count, CUevent event) {
  GS_CURRENT();
  const auto found = runtime.events.find(event);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  return add(runtime, node, graph, dependencies, count, {CUDA_SUCCESS, make_record(found)});
}

CUresult cuGraphAddEventWaitNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                 size_t count, CUevent event) {
  GS_CURRENT();
  const auto found = runtime.events.find(event);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  return add(runtime, node, graph, dependencies, count, {CUDA_SUCCESS, make_wait(found)});
}
