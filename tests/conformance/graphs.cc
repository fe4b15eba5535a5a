// SPDX-License-Identifier: Apache-2.0
// Graphs that are built node by node, and the executable graphs that are made from them.
#include <chrono>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <optional>

#include "tests/conformance/scenes.h"

namespace gpushare::conformance {
namespace {

constexpr char kNoKernels[] = ".version 7.0\n.target sm_70\n.address_size 64\n";

// A graph, and the executable graph that is made from it.
class Graph {
 public:
  explicit Graph(Stage& stage) : stage_(stage) { must(cuGraphCreate(&graph_, 0), "cuGraphCreate"); }
  // What a stream captures that notes these letters, behind a hold if one is to be made.
  Graph(Stage& stage, const char* notes, std::optional<Hold>* hold = nullptr) : stage_(stage) {
    const CUstream stream = stage.non_blocking();
    begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    if (hold != nullptr) hold->emplace(stage, stream);
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

// The driver does not take a launch into a graph, and that ends the capture.
void launch_into_a_capture(Stage& stage) {
  const CUstream stream = stage.non_blocking();
  Graph graph(stage);
  graph.note('b');
  graph.instantiate();
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  stage.note(stream, 'a');
  stage.say(name_of(graph.try_to_launch(stream)) + " " + capture_status(stream));
  stage.say("again " + name_of(graph.try_to_launch(stream)));
  stage.say(end_capture(stream));
  graph.launch(stream);
}

// What a thread may do with graphs while one of its streams captures for all threads.
void calls_while_capturing(Stage& stage) {
  const CUstream stream = stage.non_blocking(), other = stage.non_blocking();
  Graph graph(stage), same(stage);
  const CUgraphNode node = graph.note('a');
  same.note('b');
  graph.instantiate();
  CUgraphExec exec = nullptr;
  const auto say_of = [&](const char* what, const auto& call) {
    begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    stage.say(what + call() + " " + capture_status(stream));
    static_cast<void>(end_capture(stream));
  };
  say_of("set ", [&] { return graph.set_note(node, 'c'), std::string("SUCCESS"); });
  say_of("update ", [&] { return graph.update(same); });
  say_of("launch elsewhere ", [&] { return name_of(graph.try_to_launch(other)); });
  say_of("instantiate ",
         [&] { return name_of(cuGraphInstantiateWithFlags(&exec, graph.get(), 0)); });
  say_of("upload ", [&] { return name_of(cuGraphUpload(graph.exec(), other)); });
}

// Launches the graph, which is held while the call that waits for it is under way. The thread that
// ends the hold makes no call, as the driver lets no other thread in while one is in cuMemFree; it
// only gives a call that does not wait some time to return.
template <class Wait>
void wait_while_held(Stage& stage, const Graph& graph, CUstream stream, Hold& hold,
                     const Wait& wait_for_it) {
  graph.launch(stream);
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    hold.end();
  });
  wait_for_it();
  stage.note_now('-');
  ends.join();
}

// A wait for the context waits for graphs, wherever they were captured and whatever changed them,
// also for one whose stream has ended.
void context_wait_behind_a_graph(Stage& stage) {
  const auto wait_for_context = [] { must(cuCtxSynchronize(), "cuCtxSynchronize"); };
  std::optional<Hold> first, second, third;
  Graph graph(stage, "a", &first), same(stage, "b", &second), last(stage, "c", &third);
  graph.instantiate();
  wait_while_held(stage, graph, stage.non_blocking(), *first, wait_for_context);
  stage.say(graph.update(same));
  wait_while_held(stage, graph, stage.stream(), *second, wait_for_context);
  CUstream ended = nullptr;
  must(cuStreamCreate(&ended, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  last.instantiate();
  wait_while_held(stage, last, ended, *third, [&] {
    must(cuStreamDestroy_v2(ended), "cuStreamDestroy");
    ended = nullptr;
    wait_for_context();
  });
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

// Whoever gives up memory or kernels that a graph may still use waits for it.
void given_up_behind_a_graph(Stage& stage) {
  constexpr size_t kBytes = 1 << 20;
  CUdeviceptr memory = 0;
  void *pinned = nullptr, *registered = std::aligned_alloc(4096, kBytes);
  CUmodule module = nullptr;
  must(cuMemAlloc_v2(&memory, kBytes), "cuMemAlloc");
  must(cuMemHostAlloc(&pinned, kBytes, 0), "cuMemHostAlloc");
  must(cuMemHostRegister_v2(registered, kBytes, 0), "cuMemHostRegister");
  must(cuModuleLoadData(&module, kNoKernels), "cuModuleLoadData");
  const std::function<CUresult()> calls[] = {
      [&] { return cuMemFree_v2(memory); }, [&] { return cuMemFreeHost(pinned); },
      [&] { return cuMemHostUnregister(registered); }, [&] { return cuModuleUnload(module); }};
  char what = 'a';
  for (const auto& call : calls) {
    std::optional<Hold> hold;
    const char notes[] = {what++, 0};
    Graph graph(stage, notes, &hold);
    graph.instantiate();
    wait_while_held(stage, graph, stage.non_blocking(), *hold, [&] { must(call(), notes); });
  }
  std::free(registered);
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
    {"calls for graphs while a stream captures", calls_while_capturing},
    {"wait for the context behind a graph", context_wait_behind_a_graph},
    {"memory and kernels given up behind a graph", given_up_behind_a_graph},
    {"graphs that are refused", refusals},
};

}  // namespace

std::span<const Scene> graph_scenes() { return kScenes; }

}  // namespace gpushare::conformance
