// SPDX-License-Identifier: Apache-2.0
// sms: notes on which SMs its kernels ran, which shows how much of the GPU a program really gets.
// The kernel has eight blocks for each SM of the GPU, and each block stays for a while.
#include <bit>
#include <vector>

#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/gpu_session.h"
#include "tests/workloads/common/json_line.h"

namespace gpushare::workloads {
namespace {

constexpr unsigned kBlocksPerSm = 8;
constexpr unsigned kThreads = 1024;

struct Settings {
  uint64_t launches = 20, units = 2000, pause_us = 0, device = 0;
  std::string stream = "non-blocking", by = "launch";

  explicit Settings(Flags& flags) {
    flags.add("--launches", &launches, "kernels, one after the other; each is one line", "--units",
              &units, "how long a block stays, in units of 8 rounds", "--pause-us", &pause_us,
              "between two kernels", "--stream", &stream,
              "legacy, per-thread, blocking or non-blocking", "--by", &by,
              "launch, or a graph: captured, built, or within another one");
    flags.limit("--launches", 1);
    flags.limit("--units", 1, 1u << 30);
    flags.parse(&device);
    if (by != "launch" && by != "captured" && by != "built" && by != "within")
      flags.fail("--by is launch, captured, built or within");
  }
};

CUstream stream_of(const Settings& s, const GpuSession& session) {
  if (s.stream == "legacy") return nullptr;
  if (s.stream == "per-thread") return GS_CU_STREAM_PER_THREAD;
  if (s.stream == "blocking") return session.new_stream(CU_STREAM_DEFAULT);
  if (s.stream == "non-blocking") return session.new_stream(CU_STREAM_NON_BLOCKING);
  die("--stream is legacy, per-thread, blocking or non-blocking");
}

// As hexadecimal digits, the highest SM first.
std::string digits(const std::vector<uint32_t>& words) {
  std::string text;
  for (auto word = words.rbegin(); word != words.rend(); ++word)
    text += fmt::format("{:08x}", *word);
  return text;
}

// The kernel, launched or as a graph of its own.
class Noting {
 public:
  Noting(const Settings& s, const GpuSession& session, CUdeviceptr seen)
      : kernel_(session.kernel("gs_sms")),
        shape_{kBlocksPerSm * session.sm_count(), kThreads},
        seen_(seen),
        units_(static_cast<uint32_t>(s.units)) {
    if (s.by == "launch") return;
    CUgraph graph = nullptr;
    if (s.by == "captured") {
      const CUstream stream = session.new_stream(CU_STREAM_NON_BLOCKING);
      check(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            "cuStreamBeginCapture_v2");
      launch(kernel_, shape_, stream, seen_, units_);
      check(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    } else {
      void* pointers[] = {&seen_, &units_};
      const CUDA_KERNEL_NODE_PARAMS_v2 parameters = kernel_node(kernel_, shape_, pointers);
      CUgraphNode node = nullptr;
      check(cuGraphCreate(&graph, 0), "cuGraphCreate");
      check(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &parameters),
            "cuGraphAddKernelNode_v2");
    }
    if (s.by == "within") {
      const CUgraph inner = graph;
      CUgraphNode node = nullptr;
      check(cuGraphCreate(&graph, 0), "cuGraphCreate");
      check(cuGraphAddChildGraphNode(&node, graph, nullptr, 0, inner), "cuGraphAddChildGraphNode");
      check(cuGraphDestroy(inner), "cuGraphDestroy");
    }
    check(cuGraphInstantiateWithFlags(&exec_, graph, 0), "cuGraphInstantiateWithFlags");
    check(cuGraphDestroy(graph), "cuGraphDestroy");
  }
  void in(CUstream stream) const {
    if (exec_ != nullptr)
      check(cuGraphLaunch(exec_, stream), "cuGraphLaunch");
    else
      launch(kernel_, shape_, stream, seen_, units_);
  }

 private:
  const CUfunction kernel_;
  const LaunchShape shape_;
  CUdeviceptr seen_;
  uint32_t units_;
  CUgraphExec exec_ = nullptr;
};

int run(const Settings& s) {
  const GpuSession session(s.device, CU_CTX_SCHED_BLOCKING_SYNC);
  const CUstream stream = stream_of(s, session);
  std::vector<uint32_t> words((session.sm_count() + 31) / 32), all(words.size());
  const size_t bytes = words.size() * sizeof(uint32_t);
  const CUdeviceptr seen = session.new_zeroed(bytes);
  const Noting kernel(s, session, seen);
  uint64_t least = ~uint64_t{0}, most = 0;
  for (uint64_t i = 0; i < s.launches; ++i) {
    if (s.pause_us != 0) sleep_until_ns(now_ns() + s.pause_us * 1000);
    check(cuMemsetD8Async(seen, 0, bytes, stream), "cuMemsetD8Async");
    const uint64_t begin = now_ns();
    kernel.in(stream);
    check(cuMemcpyDtoHAsync_v2(words.data(), seen, bytes, stream), "cuMemcpyDtoHAsync_v2");
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    const uint64_t end = now_ns();
    uint64_t count = 0;
    for (size_t word = 0; word < words.size(); ++word) {
      count += static_cast<uint64_t>(std::popcount(words[word]));
      all[word] |= words[word];
    }
    least = std::min(least, count);
    most = std::max(most, count);
    JsonLine()
        .add("t_ns", begin)
        .add("sms", count)
        .add("on", digits(words))
        .add("us", static_cast<double>(end - begin) / 1e3)
        .print();
  }
  JsonLine("sms", session.device_name())
      .add("stream", s.stream)
      .add("by", s.by)
      .add("launches", s.launches)
      .add("sm_count", session.sm_count())
      .add("least", least)
      .add("most", most)
      .add("on", digits(all))
      .print();
  return 0;
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("sms", "on which SMs its kernels ran.")
