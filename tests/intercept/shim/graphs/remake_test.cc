// SPDX-License-Identifier: Apache-2.0
// A graph that is made again in another context does the same there, on the stand-in libcuda: its
// kernels have their parameters, attributes and edges, and all other nodes stay.
#include "intercept/shim/graphs/remake.h"

#include <cstring>
#include <map>
#include <utility>

#include "tests/intercept/sim/libcuda/fixture.h"

namespace gpushare {
namespace {

constexpr auto kPriority = static_cast<CUlaunchAttributeID>(8);
constexpr auto kUpdatable = static_cast<CUlaunchAttributeID>(13);

const shim::GraphDriver kDriver = GS_LINKED_GRAPH_DRIVER;

CUlaunchAttributeValue number(int value) {
  CUlaunchAttributeValue made{};
  std::memcpy(&made, &value, sizeof value);
  return made;
}

std::vector<CUgraphNode> nodes_of(CUgraph graph) {
  size_t count = 0;
  EXPECT_EQ(cuGraphGetNodes(graph, nullptr, &count), CUDA_SUCCESS);
  std::vector<CUgraphNode> nodes(count);
  EXPECT_EQ(cuGraphGetNodes(graph, nodes.data(), &count), CUDA_SUCCESS);
  return nodes;
}

std::vector<CUgraphNode> kernels_of(CUgraph graph) {
  std::vector<CUgraphNode> kernels;
  for (CUgraphNode node : nodes_of(graph)) {
    CUgraphNodeType type{};
    EXPECT_EQ(cuGraphNodeGetType(node, &type), CUDA_SUCCESS);
    if (type == CU_GRAPH_NODE_TYPE_KERNEL) kernels.push_back(node);
  }
  return kernels;
}

// The contexts of its kernels, in their order.
std::vector<CUcontext> contexts_of(CUgraph graph, shim::GraphAbout* about) {
  std::vector<CUcontext> contexts;
  *about = shim::about_graph(
      kDriver, graph,
      [](void* data, CUcontext context) {
        static_cast<std::vector<CUcontext>*>(data)->push_back(context);
        return true;
      },
      &contexts);
  return contexts;
}

class Remake : public CudaStandin {
 protected:
  void SetUp() override {
    GS_OK(cuInit(0));
    GS_OK(cuDevicePrimaryCtxRetain(&primary_, 0));
    GS_OK(cuCtxPushCurrent_v2(primary_));
    GS_OK(cuModuleLoadData(&module_, workloads::kKernels));
    make_part(&green_);
    GS_OK(cuCtxFromGreenCtx(&there_, green_));
  }
  void TearDown() override {
    GS_OK(cuGreenCtxDestroy(green_));
    GS_OK(cuCtxPopCurrent_v2(&primary_));
    GS_OK(cuDevicePrimaryCtxRelease_v2(0));
  }

  // Which SMs the kernel of gs_sms sees, between two kernels of gs_note and a host function.
  CUgraph noting(CUdeviceptr sms, CUdeviceptr list) {
    const CUstream in = stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamBeginCapture_v2(in, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT_EQ(launch(kernel("gs_note"), 1, 1, in, list, 11u), CUDA_SUCCESS);
    EXPECT_EQ(launch(kernel("gs_sms"), 1000, 32, in, sms, 1u), CUDA_SUCCESS);
    EXPECT_EQ(cuMemsetD32Async(list + 4 * 7, 99, 1, in), CUDA_SUCCESS);
    EXPECT_EQ(launch(kernel("gs_note"), 1, 1, in, list, 22u), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamEndCapture(in, &graph), CUDA_SUCCESS);
    return graph;
  }

  CUcontext primary_ = nullptr, there_ = nullptr;
  CUgreenCtx green_ = nullptr;
};

TEST_F(Remake, DoesTheSameInTheOtherContext) {
  const CUdeviceptr sms = words(8), list = words(8);
  const CUgraph graph = noting(sms, list);
  const CUgraph copy = shim::remake(kDriver, graph, there_);
  ASSERT_NE(copy, nullptr);
  GS_OK(cuGraphDestroy(graph));
  CUgraphExec exec = nullptr;
  GS_OK(cuGraphInstantiateWithFlags(&exec, copy, 0));
  GS_OK(cuGraphLaunch(exec, nullptr));
  GS_OK(cuCtxSynchronize());
  EXPECT_EQ(read(sms, 8), (std::vector<uint32_t>{0xFF, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(read(list, 8), (std::vector<uint32_t>{2, 11, 22, 0, 0, 0, 0, 99}));
  GS_OK(cuGraphExecDestroy(exec));
  GS_OK(cuGraphDestroy(copy));
}

TEST_F(Remake, LeavesTheGraphItselfAsItWas) {
  const CUgraph graph = noting(words(8), words(8));
  const auto before = nodes_of(graph);
  const CUgraph copy = shim::remake(kDriver, graph, there_);
  shim::GraphAbout about;
  EXPECT_EQ(nodes_of(graph), before);
  EXPECT_EQ(contexts_of(graph, &about), (std::vector<CUcontext>(3, primary_)));
  EXPECT_EQ(contexts_of(copy, &about), (std::vector<CUcontext>(3, there_)));
  EXPECT_EQ(nodes_of(copy).size(), before.size());
  GS_OK(cuGraphDestroy(copy));
  GS_OK(cuGraphDestroy(graph));
}

TEST_F(Remake, KeepsAttributes) {
  const CUgraph graph = noting(words(8), words(8));
  const CUlaunchAttributeValue greatest = number(-5);
  GS_OK(cuGraphKernelNodeSetAttribute(kernels_of(graph)[1], kPriority, &greatest));
  const CUgraph copy = shim::remake(kDriver, graph, there_);
  std::vector<int> priorities;
  for (CUgraphNode node : kernels_of(copy)) {
    CUlaunchAttributeValue value{};
    GS_OK(cuGraphKernelNodeGetAttribute(node, kPriority, &value));
    priorities.push_back(value.priority);
  }
  EXPECT_EQ(priorities, (std::vector<int>{0, -5, 0}));
  GS_OK(cuGraphDestroy(copy));
  GS_OK(cuGraphDestroy(graph));
}

// Those that CUDA 13.1 to 13.4 added, on a driver that knows them.
std::map<std::pair<CUgraphNode, unsigned>, CUlaunchAttributeValue> newer_attributes;
bool is_newer(CUlaunchAttributeID attribute) {
  return static_cast<unsigned>(attribute) >= 17 && static_cast<unsigned>(attribute) <= 19;
}

TEST_F(Remake, KeepsAttributesOfNewerDrivers) {
  shim::GraphDriver newer = kDriver;
  newer.cuGraphKernelNodeGetAttribute = [](CUgraphNode node, CUlaunchAttributeID attribute,
                                           CUlaunchAttributeValue* value) {
    if (!is_newer(attribute)) return cuGraphKernelNodeGetAttribute(node, attribute, value);
    *value = newer_attributes[{node, static_cast<unsigned>(attribute)}];
    return CUDA_SUCCESS;
  };
  newer.cuGraphKernelNodeSetAttribute = [](CUgraphNode node, CUlaunchAttributeID attribute,
                                           const CUlaunchAttributeValue* value) {
    if (!is_newer(attribute)) return cuGraphKernelNodeSetAttribute(node, attribute, value);
    newer_attributes[{node, static_cast<unsigned>(attribute)}] = *value;
    return CUDA_SUCCESS;
  };
  // A copy of the graph, made by the driver, has them, too.
  newer.cuGraphClone = [](CUgraph* clone, CUgraph graph) {
    const CUresult result = cuGraphClone(clone, graph);
    const auto from = kernels_of(graph), to = kernels_of(*clone);
    for (size_t i = 0; i < from.size(); ++i)
      for (unsigned id = 17; id <= 19; ++id)
        newer_attributes[{to[i], id}] = newer_attributes[{from[i], id}];
    return result;
  };
  const CUgraph graph = noting(words(8), words(8));
  for (unsigned id = 17; id <= 19; ++id) newer_attributes[{kernels_of(graph)[1], id}] = number(2);
  const CUgraph copy = shim::remake(newer, graph, there_);
  for (unsigned id = 17; id <= 19; ++id)
    EXPECT_EQ((newer_attributes[{kernels_of(copy)[1], id}].priority), 2) << id;
  newer_attributes.clear();
  GS_OK(cuGraphDestroy(copy));
  GS_OK(cuGraphDestroy(graph));
}

TEST_F(Remake, ABackAndForthIsTheSameGraph) {
  const CUdeviceptr list = words(8);
  const CUgraph graph = noting(words(8), list);
  const CUgraph away = shim::remake(kDriver, graph, there_);
  const CUgraph back = shim::remake(kDriver, away, primary_);
  CUgraphExec exec = nullptr;
  CUgraphExecUpdateResultInfo_v1 info{};
  GS_OK(cuGraphInstantiateWithFlags(&exec, away, 0));
  EXPECT_EQ(cuGraphExecUpdate_v2(exec, back, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
      << "the driver wants its kernels in the same context";
  const CUgraph again = shim::remake(kDriver, back, there_);
  GS_OK(cuGraphExecUpdate_v2(exec, again, &info));
  GS_OK(cuGraphLaunch(exec, nullptr));
  GS_OK(cuCtxSynchronize());
  EXPECT_EQ(read(list, 3), (std::vector<uint32_t>{2, 11, 22}));
  GS_OK(cuGraphExecDestroy(exec));
  for (CUgraph each : {graph, away, back, again}) GS_OK(cuGraphDestroy(each));
}

TEST_F(Remake, IsNotForGraphsWithinGraphsOrKernelsThatOthersChange) {
  const CUgraph graph = noting(words(8), words(8));
  shim::GraphAbout about;
  contexts_of(graph, &about);
  EXPECT_TRUE(about.can_be_remade && about.is_known);

  CUgraph outer = nullptr;
  CUgraphNode node = nullptr;
  GS_OK(cuGraphCreate(&outer, 0));
  GS_OK(cuGraphAddChildGraphNode(&node, outer, nullptr, 0, graph));
  contexts_of(outer, &about);
  EXPECT_FALSE(about.can_be_remade);
  EXPECT_FALSE(about.is_known) << "of the kernels within it nothing is known";

  const CUlaunchAttributeValue yes = number(1);
  GS_OK(cuGraphKernelNodeSetAttribute(kernels_of(graph)[0], kUpdatable, &yes));
  contexts_of(graph, &about);
  EXPECT_FALSE(about.can_be_remade);
  EXPECT_TRUE(about.is_known);
  GS_OK(cuGraphDestroy(outer));
  GS_OK(cuGraphDestroy(graph));
}

}  // namespace
}  // namespace gpushare
