// SPDX-License-Identifier: Apache-2.0
// Graphs that are built node by node, and the executable graphs that are made from them.
#include <initializer_list>

#include "tests/conformance/scenes.h"

namespace gpushare::conformance {
namespace {

// A graph, and the executable graph that is made from it.
class Graph {
 public:
  explicit Graph(Stage& stage) : stage_(stage) { must(cuGraphCreate(&graph_, 0), "cuGraphCreate"); }
  // What a stream captures that notes these letters.
  Graph(Stage& stage, const char* notes) : stage_(stage) {
    const CUstream stream = stage.non_blocking();
    must(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED),
         "cuStreamBeginCapture_v2");
    for (; *notes != 0; ++notes) stage.note(stream, *notes);
    must(cuStreamEndCapture(stream, &graph_), "cuStreamEndCapture");
  }
  ~Graph() {
    static_cast<void>(cuCtxSynchronize());
    if (exec_ != nullptr) static_cast<void>(cuGraphExecDestroy(exec_));
    static_cast<void>(cuGraphDestroy(graph_));
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  CUgraph get() const { return graph_; }
  CUgraphNode root() const {
    CUgraphNode node = nullptr;
    size_t count = 1;
    must(cuGraphGetRootNodes(graph_, &node, &count), "cuGraphGetRootNodes");
    return node;
  }
  CUgraphExec exec() const { return exec_; }

  using Nodes = std::initializer_list<CUgraphNode>;
  CUgraphNode note(char what, Nodes after = {}) {
    const KernelNote kernel(stage_, what);
    return add("cuGraphAddKernelNode_v2", cuGraphAddKernelNode_v2, after, &kernel.parameters);
  }
  CUgraphNode note_on_host(char what, Nodes after = {}) {
    const CUDA_HOST_NODE_PARAMS_v1 parameters{Stage::run_host_note, stage_.host_note(what)};
    return add("cuGraphAddHostNode", cuGraphAddHostNode, after, &parameters);
  }
  CUgraphNode fill(CUdeviceptr word, unsigned value, Nodes after = {}) {
    const CUDA_MEMSET_NODE_PARAMS_v1 parameters{
        .dst = word, .pitch = 0, .value = value, .elementSize = 4, .width = 1, .height = 1};
    return add("cuGraphAddMemsetNode", cuGraphAddMemsetNode, after, &parameters, context());
  }
  CUgraphNode copy(CUdeviceptr to, CUdeviceptr from, Nodes after = {}) {
    CUDA_MEMCPY3D_v2 parameters{};
    parameters.srcMemoryType = parameters.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    parameters.srcDevice = from;
    parameters.dstDevice = to;
    parameters.WidthInBytes = parameters.srcPitch = parameters.dstPitch = 4;
    parameters.srcHeight = parameters.dstHeight = 1;
    parameters.Height = parameters.Depth = 1;
    return add("cuGraphAddMemcpyNode", cuGraphAddMemcpyNode, after, &parameters, context());
  }
  CUgraphNode empty(Nodes after = {}) {
    return add("cuGraphAddEmptyNode", cuGraphAddEmptyNode, after);
  }
  CUgraphNode record(CUevent event, Nodes after = {}) {
    return add("cuGraphAddEventRecordNode", cuGraphAddEventRecordNode, after, event);
  }
  CUgraphNode wait(CUevent event, Nodes after = {}) {
    return add("cuGraphAddEventWaitNode", cuGraphAddEventWaitNode, after, event);
  }
  CUgraphNode child(const Graph& graph, Nodes after = {}) {
    return add("cuGraphAddChildGraphNode", cuGraphAddChildGraphNode, after, graph.get());
  }

  // Also uploads it, so that no launch has to wait for that.
  void instantiate() {
    must(cuGraphInstantiateWithFlags(&exec_, graph_, 0), "cuGraphInstantiateWithFlags");
    const CUstream stream = stage_.stream(CU_STREAM_NON_BLOCKING);
    must(cuGraphUpload(exec_, stream), "cuGraphUpload");
    stage_.synchronize(stream);
  }
  void launch(CUstream stream) const { must(try_to_launch(stream), "cuGraphLaunch"); }
  CUresult try_to_launch(CUstream stream) const { return cuGraphLaunch(exec_, stream); }
  void set_note(CUgraphNode node, char what) const {
    const KernelNote kernel(stage_, what);
    must(cuGraphExecKernelNodeSetParams_v2(exec_, node, &kernel.parameters),
         "cuGraphExecKernelNodeSetParams_v2");
  }
  void set_note_of_graph(CUgraphNode node, char what) const {
    const KernelNote kernel(stage_, what);
    must(cuGraphKernelNodeSetParams_v2(node, &kernel.parameters), "cuGraphKernelNodeSetParams_v2");
  }
  std::string update(const Graph& from) const {
    CUgraphExecUpdateResultInfo_v1 info{};
    const CUresult result = cuGraphExecUpdate_v2(exec_, from.get(), &info);
    return name_of(result) + " " + std::to_string(info.result);
  }

 private:
  struct KernelNote {
    KernelNote(const Stage& stage, char note)
        : list(stage.list()),
          what(static_cast<unsigned char>(note)),
          parameters(workloads::kernel_node(stage.note_kernel(), {}, pointers)) {}
    KernelNote(const KernelNote&) = delete;
    KernelNote& operator=(const KernelNote&) = delete;

    CUdeviceptr list;
    uint32_t what;
    void* pointers[2] = {&list, &what};
    CUDA_KERNEL_NODE_PARAMS_v2 parameters;
  };

  template <class Add, class... Parameters>
  CUgraphNode add(const char* call, Add function, Nodes after, Parameters... parameters) {
    CUgraphNode node = nullptr;
    must(function(&node, graph_, after.begin(), after.size(), parameters...), call);
    return node;
  }
  static CUcontext context() {
    CUcontext current = nullptr;
    must(cuCtxGetCurrent(&current), "cuCtxGetCurrent");
    return current;
  }

  Stage& stage_;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

size_t roots_of(CUgraph graph) {
  size_t count = 0;
  must(cuGraphGetRootNodes(graph, nullptr, &count), "cuGraphGetRootNodes");
  return count;
}

void every_kind_of_node(Stage& stage) {
  const CUdeviceptr word = stage.word(), copy = stage.word();
  Graph graph(stage);
  const CUgraphNode a = graph.note('a');
  const CUgraphNode set = graph.fill(word, 6, {a});
  const CUgraphNode nothing = graph.empty({set});
  const CUgraphNode b = graph.note_on_host('b', {nothing});
  const CUgraphNode copied = graph.copy(copy, word, {b});
  const CUgraphNode reset = graph.fill(word, 7, {copied});
  const CUgraphNode c = graph.note('c', {reset, b});
  for (const CUgraphNode node : {a, set, nothing, b, copied, c}) {
    CUgraphNodeType type{};
    must(cuGraphNodeGetType(node, &type), "cuGraphNodeGetType");
    stage.say(std::to_string(type));
  }
  stage.say("nodes " + std::to_string(nodes_of(graph.get())) + " roots " +
            std::to_string(roots_of(graph.get())));
  graph.instantiate();
  graph.launch(stage.stream());
  stage.settle();
  stage.say(std::to_string(stage.read(word)) + " " + std::to_string(stage.read(copy)));
}

// Both branches come after the node they fork from and before the node that joins them.
void branches(Stage& stage) {
  const CUdeviceptr left = stage.word(), right = stage.word();
  Graph graph(stage);
  const CUgraphNode a = graph.note('a');
  const CUgraphNode l = graph.fill(left, 1, {a}), r = graph.fill(right, 2, {a});
  const CUgraphNode sum = graph.copy(left, right, {l, r});
  graph.note('b', {sum});
  graph.instantiate();
  graph.launch(stage.stream());
  stage.settle();
  stage.say(std::to_string(stage.read(left)) + " " + std::to_string(stage.read(right)));
}

// In its stream a launch is one piece of work, also by the rules of the legacy stream. It makes no
// difference where the nodes were captured, or that they were not.
void order_of_launches(Stage& stage) {
  Graph graph(stage);
  graph.note('h', {graph.note('g')});
  graph.instantiate();
  const CUstream blocking = stage.stream(), other = stage.non_blocking();
  {
    const Hold hold(stage, blocking);
    stage.note(blocking, 'a');
    graph.launch(blocking);
    stage.note(blocking, 'b');
    stage.note(nullptr, 'c');
    stage.witness();
  }
  stage.settle();
  {
    const Hold hold(stage, blocking);
    stage.note(blocking, 'a');
    graph.launch(nullptr);
    stage.witness();
  }
  stage.settle();
  {
    const Hold hold(stage, blocking);
    graph.launch(other);
    stage.synchronize(other);
    stage.note(blocking, 'a');
  }
}

// "A graph exec ... cannot be executed concurrently with itself: a launch is ordered after earlier
// launches of the same exec."
void launched_twice(Stage& stage) {
  Graph graph(stage);
  graph.note('g');
  graph.instantiate();
  const CUstream first = stage.non_blocking(), second = stage.non_blocking();
  const Hold hold(stage, first);
  stage.note(first, 'a');
  graph.launch(first);
  graph.launch(second);
  stage.note(second, 'b');
  stage.witness();
}

// Two execs of one graph have nothing to do with each other.
void two_execs(Stage& stage) {
  Graph graph(stage);
  graph.note('g');
  graph.instantiate();
  CUgraphExec other = nullptr;
  must(cuGraphInstantiateWithFlags(&other, graph.get(), 0), "cuGraphInstantiateWithFlags");
  const CUstream first = stage.non_blocking(), second = stage.non_blocking();
  must(cuGraphUpload(other, second), "cuGraphUpload");
  stage.synchronize(second);
  {
    const Hold hold(stage, first);
    graph.launch(first);
    must(cuGraphLaunch(other, second), "cuGraphLaunch");
    stage.note(second, 'b');
    stage.synchronize(second);
    stage.note(first, 'a');
  }
  stage.settle();
  must(cuGraphExecDestroy(other), "cuGraphExecDestroy");
}

void changed_after_instantiation(Stage& stage) {
  Graph graph(stage);
  const CUgraphNode a = graph.note('a');
  graph.instantiate();
  graph.note('b', {a});
  graph.launch(stage.stream());
  stage.settle();
  stage.say("nodes " + std::to_string(nodes_of(graph.get())));
}

// An update does not change launches that are in line already.
void update(Stage& stage) {
  Graph graph(stage), same(stage), longer(stage), other_kind(stage);
  graph.note('b', {graph.note('a')});
  same.note('d', {same.note('c')});
  longer.note('f', {longer.note('e')});
  longer.note('g');
  other_kind.note_on_host('i', {other_kind.note('h')});
  graph.instantiate();
  const CUstream stream = stage.non_blocking();
  {
    const Hold hold(stage, stream);
    graph.launch(stream);
    stage.say("same " + graph.update(same));
    graph.launch(stream);
  }
  stage.settle();
  stage.say("longer " + graph.update(longer));
  stage.say("other kind " + graph.update(other_kind));
  graph.launch(stream);
}

void set_parameters(Stage& stage) {
  Graph graph(stage);
  const CUgraphNode node = graph.note('a');
  graph.instantiate();
  const CUstream stream = stage.non_blocking();
  {
    const Hold hold(stage, stream);
    graph.launch(stream);
    graph.set_note(node, 'b');
    graph.launch(stream);
  }
  stage.settle();
}

// The same with kernels that a stream has captured.
void set_captured_parameters(Stage& stage) {
  Graph graph(stage, "ab");
  graph.instantiate();
  const CUstream stream = stage.non_blocking();
  {
    const Hold hold(stage, stream);
    graph.launch(stream);
    graph.set_note(graph.root(), 'c');
    graph.launch(stream);
    graph.set_note_of_graph(graph.root(), 'd');
    stage.say(graph.update(graph));
    graph.launch(stream);
  }
  stage.settle();
}

void clone(Stage& stage) {
  CUgraph copy = nullptr;
  {
    Graph graph(stage);
    const CUgraphNode a = graph.note('a');
    must(cuGraphClone(&copy, graph.get()), "cuGraphClone");
    const CUgraphNode b = graph.note('b', {a});
    CUgraphNode found = nullptr;
    must(cuGraphNodeFindInClone(&found, a, copy), "cuGraphNodeFindInClone");
    stage.say(found != a ? "another" : "the same");
    stage.say(name_of(cuGraphNodeFindInClone(&found, b, copy)));
  }
  CUgraphExec exec = nullptr;
  must(cuGraphInstantiateWithFlags(&exec, copy, 0), "cuGraphInstantiateWithFlags");
  must(cuGraphDestroy(copy), "cuGraphDestroy");
  must(cuGraphLaunch(exec, stage.stream()), "cuGraphLaunch");
  stage.settle();
  must(cuGraphExecDestroy(exec), "cuGraphExecDestroy");
}

void child(Stage& stage) {
  Graph inner(stage), outer(stage);
  inner.note('c', {inner.note('b')});
  const CUgraphNode before = outer.note('a');
  const CUgraphNode within = outer.child(inner, {before});
  outer.note('d', {within});
  inner.note('x');  // the node has a copy
  outer.instantiate();
  outer.launch(stage.stream());
  stage.settle();
}

void events_in_a_graph(Stage& stage) {
  const CUstream held = stage.non_blocking(), launching = stage.non_blocking(),
                 waiting = stage.non_blocking();
  const CUevent before = stage.event(), after = stage.event();
  Graph graph(stage);
  graph.record(after, {graph.note('b', {graph.wait(before)})});
  graph.instantiate();
  const Hold hold(stage, held);
  stage.note(held, 'a');
  record(before, held);
  graph.launch(launching);
  wait(waiting, after);
  stage.note(waiting, 'c');
  stage.say(name_of(cuEventQuery(after)));
  stage.witness();
  stage.settle();
  stage.say(name_of(cuEventQuery(after)));
}

void empty_graph(Stage& stage) {
  Graph graph(stage);
  graph.instantiate();
  const CUstream stream = stage.stream();
  graph.launch(stream);
  stage.note(stream, 'a');
}

// A launch that is captured becomes part of the graph.
void launch_into_a_capture(Stage& stage) {
  const CUstream stream = stage.non_blocking();
  Graph graph(stage);
  graph.note('b');
  graph.instantiate();
  must(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture_v2");
  stage.note(stream, 'a');
  stage.say(name_of(graph.try_to_launch(stream)));
  CUgraph captured = nullptr;
  if (cuStreamEndCapture(stream, &captured) == CUDA_SUCCESS)
    must(cuGraphDestroy(captured), "cuGraphDestroy");
}

void refusals(Stage& stage) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  stage.say("flags " + name_of(cuGraphCreate(&graph, 1)));
  Graph other(stage), own(stage);
  const CUgraphNode foreign = other.note('x');
  stage.say("dependency of another graph " +
            name_of(cuGraphAddEmptyNode(&node, own.get(), &foreign, 1)));
  stage.say("no exec " + name_of(cuGraphLaunch(nullptr, nullptr)));
}

constexpr Scene kScenes[] = {
    {"graph with every kind of node", every_kind_of_node},
    {"graph with branches", branches},
    {"launches of a graph in line", order_of_launches},
    {"exec launched twice", launched_twice},
    {"two execs of a graph", two_execs},
    {"graph changed after its instantiation", changed_after_instantiation},
    {"exec updated by a graph", update},
    {"exec with a node's parameters set", set_parameters},
    {"exec of a captured graph with a node's parameters set", set_captured_parameters},
    {"clone of a graph", clone},
    {"graph within a graph", child},
    {"events in a graph", events_in_a_graph},
    {"graph without nodes", empty_graph},
    {"launch of a graph while its stream captures", launch_into_a_capture},
    {"graphs that are refused", refusals},
};

}  // namespace

std::span<const Scene> graph_scenes() { return kScenes; }

}  // namespace gpushare::conformance
