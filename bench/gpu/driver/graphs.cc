// SPDX-License-Identifier: Apache-2.0
// graphs: what the driver does with graphs and parts of the GPU, on which the copies of graphs rest
// that the shim makes (intercept/shim/graphs). First on how many SMs the kernel of a graph runs, by
// how it came into the graph; then what the driver answers where a kernel is to be changed from
// another part; then what a copy of a graph of N kernels in a row costs, in microseconds of the
// host, as the shim makes it. It needs a real GPU.
#include <bit>
#include <vector>

#include "intercept/shim/graphs/remake.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/gpu_session.h"
#include "tests/workloads/common/green_context.h"
#include "tests/workloads/common/json_line.h"
#include "tests/workloads/common/quantiles.h"

namespace gpushare::workloads {
namespace {

struct Settings {
  uint64_t rounds = 20, most = 1000, device = 0;

  explicit Settings(Flags& flags) {
    flags.add("--rounds", &rounds, "of each number of kernels", "--most", &most,
              "kernels of the longest graph");
    flags.limit("--rounds", 1);
    flags.limit("--most", 1, 100'000);
    flags.parse(&device);
  }
};

const shim::GraphDriver kDriver = GS_LINKED_GRAPH_DRIVER;

std::string name_of(CUresult result) {
  const char* name = "?";
  cuGetErrorName(result, &name);
  return name;
}

// The kernel that notes the SMs on which it runs.
class Noting {
 public:
  explicit Noting(const GpuSession& session)
      : kernel_(session.kernel("gs_sms")),
        words_((session.sm_count() + 31) / 32),
        seen_(session.new_zeroed(words_ * sizeof(uint32_t))),
        parameters_(kernel_node(kernel_, {8 * session.sm_count(), 1024}, pointers_)) {}
  const CUDA_KERNEL_NODE_PARAMS_v2& parameters() const { return parameters_; }

  CUgraph captured(CUstream stream) const {
    CUgraph graph = nullptr;
    check(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED),
          "cuStreamBeginCapture_v2");
    launch(kernel_, {parameters_.gridDimX, parameters_.blockDimX}, stream, seen_, units_);
    check(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    return graph;
  }
  CUgraph added(CUcontext to) const {
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    CUDA_KERNEL_NODE_PARAMS_v2 parameters = parameters_;
    parameters.ctx = to;
    check(cuGraphCreate(&graph, 0), "cuGraphCreate");
    check(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &parameters),
          "cuGraphAddKernelNode_v2");
    return graph;
  }
  static CUgraphNode node_of(CUgraph graph) {
    CUgraphNode node = nullptr;
    size_t count = 1;
    check(cuGraphGetNodes(graph, &node, &count), "cuGraphGetNodes");
    return node;
  }

  void say(const char* what, CUgraph graph, CUstream stream) const {
    CUgraphExec exec = nullptr;
    check(cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
    std::vector<uint32_t> words(words_);
    check(cuMemsetD8Async(seen_, 0, words_ * sizeof(uint32_t), stream), "cuMemsetD8Async");
    check(cuGraphLaunch(exec, stream), "cuGraphLaunch");
    check(cuMemcpyDtoHAsync_v2(words.data(), seen_, words_ * sizeof(uint32_t), stream),
          "cuMemcpyDtoHAsync_v2");
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    int sms = 0;
    for (const uint32_t word : words) sms += std::popcount(word);
    check(cuGraphExecDestroy(exec), "cuGraphExecDestroy");
    JsonLine().add("kernel", what).add("sms", sms).print();
  }

 private:
  const CUfunction kernel_;
  const size_t words_;
  CUdeviceptr seen_;
  uint32_t units_ = 2000;
  void* pointers_[2] = {&seen_, &units_};
  CUDA_KERNEL_NODE_PARAMS_v2 parameters_;
};

void say_result(const char* what, CUresult result) {
  JsonLine().add("call", what).add("result", name_of(result)).print();
}

void places(const GpuSession& session, const GpuPart& a, const GpuPart& b, CUstream home) {
  const Noting noting(session);
  const CUgraph at_home = noting.captured(home), in_a = noting.captured(a.stream);
  noting.say("captured in the whole GPU, launched in 32 SMs", at_home, b.stream);
  noting.say("captured in 16 SMs, launched in the whole GPU", in_a, home);
  noting.say("captured in 16 SMs, launched in 32 SMs", in_a, b.stream);
  noting.say("added, with 32 SMs as the context of its parameters", noting.added(b.context), home);
  {
    const Current current(b.context);
    noting.say("added while 32 SMs are current", noting.added(nullptr), home);
  }
  noting.say("made again for 32 SMs, launched there", shim::remake(kDriver, in_a, b.context),
             b.stream);
  noting.say("made again for 32 SMs, launched in the whole GPU",
             shim::remake(kDriver, in_a, b.context), home);

  CUgraph copy = nullptr;
  check(cuGraphClone(&copy, in_a), "cuGraphClone");
  CUDA_KERNEL_NODE_PARAMS_v2 own{};
  check(cuGraphKernelNodeGetParams_v2(Noting::node_of(copy), &own),
        "cuGraphKernelNodeGetParams_v2");
  say_result("parameters set in a graph that was captured in 16 SMs, the primary context current",
             cuGraphKernelNodeSetParams_v2(Noting::node_of(copy), &own));
  noting.say("captured in 16 SMs, parameters set while the primary context is current", copy, home);

  CUgraphExec exec = nullptr;
  CUgraphExecUpdateResultInfo_v1 info{};
  check(cuGraphInstantiateWithFlags(&exec, in_a, 0), "cuGraphInstantiateWithFlags");
  const CUgraphNode node = Noting::node_of(in_a);
  check(cuGraphKernelNodeGetParams_v2(node, &own), "cuGraphKernelNodeGetParams_v2");
  say_result("the same in the executable graph",
             cuGraphExecKernelNodeSetParams_v2(exec, node, &own));
  {
    const Current current(a.context);
    say_result("the same, 16 SMs current", cuGraphExecKernelNodeSetParams_v2(exec, node, &own));
  }
  say_result("executable graph of 16 SMs updated by one that was made again for 32",
             cuGraphExecUpdate_v2(exec, shim::remake(kDriver, in_a, b.context), &info));
  say_result("executable graph of 16 SMs updated by one that was captured in the whole GPU",
             cuGraphExecUpdate_v2(exec, at_home, &info));
}

// --- what a copy costs --------------------------------------------------------------------------

class Costs {
 public:
  double time(std::vector<double>& times, const auto& call) {
    const uint64_t begin = now_ns();
    call();
    times.push_back(static_cast<double>(now_ns() - begin) / 1e3);
    return times.back();
  }
  std::vector<double> clone, remake, instantiate, first_launch, launch, update;
};

double median(const std::vector<double>& times) { return Quantiles(times).at(0.5); }

void costs(const GpuSession& session, const GpuPart& from, const GpuPart& to, uint64_t kernels,
           uint64_t rounds) {
  const CUfunction kernel = session.kernel("gs_note");
  const CUdeviceptr list = session.new_zeroed((kernels * (2 * rounds + 4) * 2 + 1) * 4);
  CUgraph graph = nullptr;
  check(cuStreamBeginCapture_v2(from.stream, CU_STREAM_CAPTURE_MODE_RELAXED),
        "cuStreamBeginCapture_v2");
  for (uint64_t i = 0; i < kernels; ++i)
    launch(kernel, {1, 1}, from.stream, list, static_cast<uint32_t>(i));
  check(cuStreamEndCapture(from.stream, &graph), "cuStreamEndCapture");
  Costs all;
  size_t free_before = 0, free_after = 0, total = 0;
  check(cuMemGetInfo_v2(&free_before, &total), "cuMemGetInfo_v2");
  std::vector<CUgraphExec> made;
  for (uint64_t round = 0; round < rounds; ++round) {
    CUgraph clone = nullptr, copy = nullptr, again = nullptr;
    CUgraphExec exec = nullptr;
    CUgraphExecUpdateResultInfo_v1 info{};
    all.time(all.clone, [&] { check(cuGraphClone(&clone, graph), "cuGraphClone"); });
    all.time(all.remake, [&] { copy = shim::remake(kDriver, graph, to.context); });
    if (copy == nullptr) die("the driver made no copy");
    all.time(all.instantiate, [&] {
      check(cuGraphInstantiateWithFlags(&exec, copy, 0), "cuGraphInstantiateWithFlags");
    });
    all.time(all.first_launch, [&] { check(cuGraphLaunch(exec, to.stream), "cuGraphLaunch"); });
    check(cuStreamSynchronize(to.stream), "cuStreamSynchronize");
    all.time(all.launch, [&] { check(cuGraphLaunch(exec, to.stream), "cuGraphLaunch"); });
    check(cuStreamSynchronize(to.stream), "cuStreamSynchronize");
    again = shim::remake(kDriver, graph, to.context);
    all.time(all.update,
             [&] { check(cuGraphExecUpdate_v2(exec, again, &info), "cuGraphExecUpdate_v2"); });
    for (CUgraph each : {clone, copy, again}) check(cuGraphDestroy(each), "cuGraphDestroy");
    made.push_back(exec);
  }
  check(cuMemGetInfo_v2(&free_after, &total), "cuMemGetInfo_v2");
  for (CUgraphExec exec : made) check(cuGraphExecDestroy(exec), "cuGraphExecDestroy");
  JsonLine()
      .add("kernels", kernels)
      .add("clone_us", median(all.clone))
      .add("remake_us", median(all.remake))
      .add("remake_us_per_kernel",
           (median(all.remake) - median(all.clone)) / static_cast<double>(kernels))
      .add("instantiate_us", median(all.instantiate))
      .add("first_launch_us", median(all.first_launch))
      .add("launch_us", median(all.launch))
      .add("update_us", median(all.update))
      .add("memory_kib_per_copy",
           static_cast<double>(free_before - free_after) / 1024 / static_cast<double>(rounds))
      .print();
}

int run(const Settings& s) {
  const GpuSession session(s.device, CU_CTX_SCHED_SPIN);
  const CUstream home = session.new_stream();
  const GpuPart a(session, 16), b(session, 32);
  places(session, a, b, home);
  for (uint64_t kernels = 10; kernels <= s.most; kernels *= 10)
    costs(session, a, b, kernels, s.rounds);
  return 0;
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("graphs", "what the driver does with graphs and parts of the GPU.")
