// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/graphs/remake.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <span>

#include "intercept/shim/driver/in_context.h"

namespace gpushare::shim {
namespace {

// An array that is null if there is no memory for it.
template <class T>
class Array {
 public:
  explicit Array(size_t count)
      : begin_(static_cast<T*>(std::calloc(count + 1, sizeof *begin_))), count_(count) {}
  ~Array() { std::free(static_cast<void*>(begin_)); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  bool is_there() const { return begin_ != nullptr; }
  T* begin() { return begin_; }
  T* end() { return begin_ + count_; }
  T& operator[](size_t i) { return begin_[i]; }
  size_t count() const { return count_; }

 private:
  T* const begin_;
  const size_t count_;
};

size_t count_nodes(const GraphDriver& driver, CUgraph graph) {
  size_t count = 0;
  return driver.cuGraphGetNodes(graph, nullptr, &count) == CUDA_SUCCESS ? count : 0;
}

bool get_nodes(const GraphDriver& driver, CUgraph graph, Array<CUgraphNode>& nodes) {
  size_t count = nodes.count();
  return nodes.is_there() &&
         (count == 0 || driver.cuGraphGetNodes(graph, nodes.begin(), &count) == CUDA_SUCCESS) &&
         count == nodes.count();
}

// Those of CUgraphNodeType that the driver copies with a graph and that belong to no context, or
// can be added to another one.
bool can_be_copied(CUgraphNodeType type) {
  constexpr unsigned kSignal = 8, kWait = 9;  // external semaphores
  switch (static_cast<unsigned>(type)) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
    case kSignal:
    case kWait:
      return true;
    default:
      return false;
  }
}

// A graph within the graph, one behind a condition, or a kind that came later.
bool has_kernels_within(CUgraphNodeType type) {
  constexpr unsigned kMemoryFree = 11;
  return type == CU_GRAPH_NODE_TYPE_GRAPH ||
         (static_cast<unsigned>(type) > kMemoryFree && type != CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
}

// --- attributes ---------------------------------------------------------------------------------

// CUlaunchAttributeID: a kernel that other kernels may change while the graph is in the GPU.
constexpr auto kDeviceUpdatable = static_cast<CUlaunchAttributeID>(13);
// The attributes that a node of a graph has: access policy window, cooperative, cluster dimension,
// cluster scheduling policy, priority, two of memory synchronization domains, preferred cluster
// dimension, preferred carveout, NVLink-centric scheduling, and three numbers in which CUDA 13.1 to
// 13.4 say whether a cluster may be of a size that is not portable, and how much shared memory a
// block may have. A driver that does not know one of them says so. One that knows more is newer
// than hooks.def, and then no partition is made.
constexpr CUlaunchAttributeID kAttributes[] = {
    static_cast<CUlaunchAttributeID>(1),  static_cast<CUlaunchAttributeID>(2),
    static_cast<CUlaunchAttributeID>(4),  static_cast<CUlaunchAttributeID>(5),
    static_cast<CUlaunchAttributeID>(8),  static_cast<CUlaunchAttributeID>(9),
    static_cast<CUlaunchAttributeID>(10), static_cast<CUlaunchAttributeID>(11),
    static_cast<CUlaunchAttributeID>(14), static_cast<CUlaunchAttributeID>(16),
    static_cast<CUlaunchAttributeID>(17), static_cast<CUlaunchAttributeID>(18),
    static_cast<CUlaunchAttributeID>(19)};

// Which of them the driver knows is learnt at the first node: a refusal is slow.
class Attributes {
 public:
  explicit Attributes(const GraphDriver& driver) : driver_(driver) {}

  bool copy(CUgraphNode from, CUgraphNode to) {
    for (size_t i = 0; i < std::size(kAttributes); ++i) {
      if ((unknown_ >> i & 1) != 0) continue;
      CUlaunchAttributeValue wanted{}, there{};
      if (driver_.cuGraphKernelNodeGetAttribute(from, kAttributes[i], &wanted) != CUDA_SUCCESS) {
        unknown_ |= 1u << i;
        continue;
      }
      if (driver_.cuGraphKernelNodeGetAttribute(to, kAttributes[i], &there) == CUDA_SUCCESS &&
          std::ranges::equal(std::as_bytes(std::span(&wanted, 1)),
                             std::as_bytes(std::span(&there, 1))))
        continue;
      if (driver_.cuGraphKernelNodeSetAttribute(to, kAttributes[i], &wanted) != CUDA_SUCCESS)
        return false;
    }
    return true;
  }

 private:
  const GraphDriver& driver_;
  uint32_t unknown_ = 0;
};

// --- kernels ------------------------------------------------------------------------------------

// A kernel of the graph, and the one that was added for it.
struct Remade {
  CUgraphNode old;
  CUgraphNode added;
};

bool is_before(const Remade& a, const Remade& b) { return a.old < b.old; }

CUgraphNode in_place_of(Array<Remade>& all, size_t count, CUgraphNode node) {
  Remade* const end = all.begin() + count;
  Remade* const found = std::lower_bound(all.begin(), end, Remade{node, nullptr}, is_before);
  return found != end && found->old == node ? found->added : nullptr;
}

// Adds all kernels of the graph anew, without edges. `count`: how many they are.
bool add_kernels(const GraphDriver& driver, CUgraph graph, CUcontext there,
                 Array<CUgraphNode>& nodes, Array<Remade>& remade, size_t* count) {
  const InContext in(driver, there);
  if (!in.is_there()) return false;
  Attributes attributes(driver);
  for (CUgraphNode node : nodes) {
    CUgraphNodeType type{};
    if (driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return false;
    if (type != CU_GRAPH_NODE_TYPE_KERNEL) continue;
    CUDA_KERNEL_NODE_PARAMS_v2 parameters{};
    if (driver.cuGraphKernelNodeGetParams_v2(node, &parameters) != CUDA_SUCCESS) return false;
    if (parameters.ctx == there) continue;  // it stays
    // A kernel of a library belongs to no context, and goes where it is told to; a function of a
    // module goes to the context that is current.
    if (parameters.kern != nullptr) parameters.func = nullptr;
    parameters.ctx = there;
    Remade& one = remade[*count];
    one.old = node;
    if (driver.cuGraphAddKernelNode_v2(&one.added, graph, nullptr, 0, &parameters) !=
            CUDA_SUCCESS ||
        !attributes.copy(node, one.added))
      return false;
    ++*count;
  }
  std::sort(remade.begin(), remade.begin() + *count, is_before);
  return true;
}

// Gives the added kernels the edges of the old ones.
bool copy_edges(const GraphDriver& driver, CUgraph graph, Array<Remade>& remade, size_t kernels) {
  size_t count = 0;
  if (driver.cuGraphGetEdges_v2(graph, nullptr, nullptr, nullptr, &count) != CUDA_SUCCESS)
    return false;
  if (count == 0) return true;
  Array<CUgraphNode> from(count), to(count);
  Array<CUgraphEdgeData> data(count);
  if (!from.is_there() || !to.is_there() || !data.is_there() ||
      driver.cuGraphGetEdges_v2(graph, from.begin(), to.begin(), data.begin(), &count) !=
          CUDA_SUCCESS)
    return false;
  size_t kept = 0;
  for (size_t i = 0; i < count; ++i) {
    CUgraphNode const first = in_place_of(remade, kernels, from[i]);
    CUgraphNode const second = in_place_of(remade, kernels, to[i]);
    if (first == nullptr && second == nullptr) continue;
    from[kept] = first != nullptr ? first : from[i];
    to[kept] = second != nullptr ? second : to[i];
    data[kept++] = data[i];
  }
  return kept == 0 || driver.cuGraphAddDependencies_v2(graph, from.begin(), to.begin(),
                                                       data.begin(), kept) == CUDA_SUCCESS;
}

bool bring_kernels(const GraphDriver& driver, CUgraph graph, CUcontext there) {
  Array<CUgraphNode> nodes(count_nodes(driver, graph));
  Array<Remade> remade(nodes.count());
  size_t count = 0;
  if (!remade.is_there() || !get_nodes(driver, graph, nodes) ||
      !add_kernels(driver, graph, there, nodes, remade, &count) ||
      !copy_edges(driver, graph, remade, count))
    return false;
  for (size_t i = 0; i < count; ++i)
    if (driver.cuGraphDestroyNode(remade[i].old) != CUDA_SUCCESS) return false;
  return true;
}

}  // namespace

GraphAbout about_graph(const GraphDriver& driver, CUgraph graph, VisitContext visit, void* data) {
  GraphAbout about;
  Array<CUgraphNode> nodes(count_nodes(driver, graph));
  if (!get_nodes(driver, graph, nodes)) return about;
  about.can_be_remade = about.is_known = true;
  bool knows_updates = true;
  for (CUgraphNode node : nodes) {
    CUgraphNodeType type{};
    if (driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return {};
    if (!can_be_copied(type)) about.can_be_remade = false;
    if (has_kernels_within(type)) about.is_known = false;
    if (type != CU_GRAPH_NODE_TYPE_KERNEL) continue;
    CUDA_KERNEL_NODE_PARAMS_v2 parameters{};
    if (driver.cuGraphKernelNodeGetParams_v2(node, &parameters) != CUDA_SUCCESS) return {};
    CUlaunchAttributeValue updatable{};
    if (knows_updates &&
        driver.cuGraphKernelNodeGetAttribute(node, kDeviceUpdatable, &updatable) != CUDA_SUCCESS)
      knows_updates = false;
    int is_updatable = 0;
    std::memcpy(&is_updatable, &updatable, sizeof is_updatable);
    if (is_updatable != 0) about.can_be_remade = false;
    if (!visit(data, parameters.ctx)) about.can_be_remade = false;
  }
  return about;
}

CUgraph remake(const GraphDriver& driver, CUgraph graph, CUcontext there) {
  CUgraph copy = nullptr;
  if (driver.cuGraphClone(&copy, graph) != CUDA_SUCCESS) return nullptr;
  if (bring_kernels(driver, copy, there)) return copy;
  driver.cuGraphDestroy(copy);
  return nullptr;
}

}  // namespace gpushare::shim
