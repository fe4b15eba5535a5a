// SPDX-License-Identifier: Apache-2.0
// launches: what a launch of an empty kernel, and a launch with the wait for it, cost the host,
// past the shim and through it. moves.py runs it under shim_drive. Both are measured in one
// process, because two processes differ by more than the shim costs, and in these ways:
//   driver        the driver's own functions, in streams of the process's context
//   driver green  the same, in streams of a green context of --green-sms
//   program       as any program calls, so through the shim if there is one; streams as `driver`
// With --legacy 1 the first and the last way use the legacy default stream. The launches are no
// iterations: after some 80,000 of them the shim's recogniser falls asleep, and --warm-up 400
// leaves out what it costs until then. With --iterate N there are only iterations (4 KiB of input,
// N launches of eight functions in turn, a wait), and the time of one iteration is measured. With
// --graph N each launch is one of an executable graph of N kernels in a row.
#include <dlfcn.h>

#include <array>
#include <memory>
#include <vector>

#include "intercept/shim/driver/elf_lookup.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/gpu_session.h"
#include "tests/workloads/common/green_context.h"
#include "tests/workloads/common/json_line.h"
#include "tests/workloads/common/quantiles.h"

namespace gpushare::workloads {
namespace {

struct Settings {
  uint64_t turns = 2000, warm_up = 20, launches = 200, waits = 50, iterate = 0, graph = 0,
           green_sms = 120, legacy = 0, device = 0;

  explicit Settings(Flags& flags) {
    flags.add("--turns", &turns, "how many turns, each with all ways", "--warm-up", &warm_up,
              "how many turns before those do not count", "--launches", &launches,
              "launches in each turn and way", "--waits", &waits,
              "launches with a wait after each, in each turn and way", "--iterate", &iterate,
              "launches in each iteration; 0: there are no iterations", "--graph", &graph,
              "kernels of the graph that is launched; 0: a kernel is", "--green-sms", &green_sms,
              "SMs of the green context past the shim", "--legacy", &legacy,
              "1: launch into the legacy default stream");
    flags.limit("--turns", 1, 1'000'000);
    flags.limit("--warm-up", 0, 1'000'000);
    flags.limit("--launches", 1, 500);
    flags.limit("--waits", 1, 500);
    flags.limit("--iterate", 0, 500);
    flags.limit("--graph", 0, 10'000);
    flags.limit("--legacy", 0, 1);
    flags.parse(&device);
  }
};

// Streams differ by 2 %, because they have different hardware queues: each way uses this many in
// turn.
constexpr std::size_t kStreams = 4;

// The driver's functions, found in its library past every preloaded one.
struct Driver {
  link_map* const library = open();
// This is a declaration, which takes no parentheses. NOLINTNEXTLINE(bugprone-macro-parentheses)
#define GPUSHARE_DRIVER(name) decltype(&::name) name = find<decltype(&::name)>(#name)
  GPUSHARE_DRIVER(cuLaunchKernel);
  GPUSHARE_DRIVER(cuStreamSynchronize);
  GPUSHARE_DRIVER(cuMemcpyHtoDAsync_v2);
  GPUSHARE_DRIVER(cuStreamBeginCapture_v2);
  GPUSHARE_DRIVER(cuStreamEndCapture);
  GPUSHARE_DRIVER(cuGraphInstantiateWithFlags);
  GPUSHARE_DRIVER(cuGraphLaunch);
  GPUSHARE_DRIVER(cuGreenCtxStreamCreate);
  GPUSHARE_DRIVER(cuGreenCtxCreate);
  GPUSHARE_DRIVER(cuDeviceGetDevResource);
  GPUSHARE_DRIVER(cuDevSmResourceSplitByCount);
  GPUSHARE_DRIVER(cuDevResourceGenerateDesc);
#undef GPUSHARE_DRIVER

  static link_map* open() {
    void* const handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    link_map* map = nullptr;
    if (handle == nullptr || dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0)
      die("no libcuda.so.1");
    return map;
  }
  template <class Function>
  Function find(const char* name) const {
    void* const found = shim::function_of(*library, name);
    if (found == nullptr) die(std::string("libcuda.so.1 has no ") + name);
    return reinterpret_cast<Function>(found);
  }

  std::vector<CUstream> green_streams(const GpuSession& session, uint64_t sms) const {
    const GreenCalls calls{.get_resource = cuDeviceGetDevResource,
                           .split = cuDevSmResourceSplitByCount,
                           .describe = cuDevResourceGenerateDesc,
                           .create = cuGreenCtxCreate,
                           .create_stream = cuGreenCtxStreamCreate};
    const auto description = describe_sms(session, static_cast<unsigned>(sms), calls);
    CUgreenCtx const green = green_context(session, description, calls);
    std::vector<CUstream> made;
    while (made.size() < kStreams) made.push_back(stream_in(green, calls));
    return made;
  }
};

// What all ways launch. A function that is loaded more than once counts as that many functions.
struct Work {
  static constexpr std::size_t kKernels = 8, kInputBytes = 4096;

  explicit Work(const Settings& s) {
    while (sessions.size() < kKernels) {
      sessions.push_back(std::make_unique<GpuSession>(s.device, CU_CTX_SCHED_SPIN));
      kernels.push_back(sessions.back()->kernel("gs_empty"));
    }
    input = sessions[0]->new_zeroed(kInputBytes);
  }
  const GpuSession& session() const { return *sessions[0]; }

  std::vector<std::unique_ptr<GpuSession>> sessions;
  std::vector<CUfunction> kernels;
  CUdeviceptr input = 0;
  std::array<char, kInputBytes> data{};
};

double ns_each(uint64_t begin, uint64_t count) {
  return static_cast<double>(now_ns() - begin) / static_cast<double>(count);
}

// Functions of the driver, or those that a program gets in their place.
struct Calls {
  decltype(&::cuLaunchKernel) launch;
  decltype(&::cuStreamSynchronize) wait;
  decltype(&::cuMemcpyHtoDAsync_v2) copy;
  decltype(&::cuStreamBeginCapture_v2) begin_capture;
  decltype(&::cuStreamEndCapture) end_capture;
  decltype(&::cuGraphInstantiateWithFlags) instantiate;
  decltype(&::cuGraphLaunch) launch_graph;
};

struct Way {
  const char* name;
  Calls calls;
  std::vector<CUstream> streams;
  CUgraphExec graph = nullptr;  // null: kernels are launched
  std::vector<double> launch_ns = {}, wait_ns = {}, iteration_ns = {};  // by turn

  void make_graph(CUfunction kernel, uint64_t kernels) {
    CUgraph captured = nullptr;
    check(calls.begin_capture(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
    for (uint64_t i = 0; i < kernels; ++i) go(kernel, streams[0]);
    check(calls.end_capture(streams[0], &captured), "cuStreamEndCapture");
    check(calls.instantiate(&graph, captured, 0), "cuGraphInstantiateWithFlags");
  }
  void go(CUfunction kernel, CUstream stream) const {
    if (graph != nullptr) return check(calls.launch_graph(graph, stream), "cuGraphLaunch");
    check(calls.launch(kernel, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr), "cuLaunchKernel");
  }
  void finish(CUstream stream) const { check(calls.wait(stream), "cuStreamSynchronize"); }
  void turn(const Work& work, uint64_t turn, const Settings& s) {
    CUstream const stream = streams[turn % streams.size()];
    if (s.iterate != 0) return iterate(work, stream, s.iterate);
    uint64_t begin = now_ns();
    for (uint64_t i = 0; i < s.launches; ++i) go(work.kernels[0], stream);
    launch_ns.push_back(ns_each(begin, s.launches));
    finish(stream);
    begin = now_ns();
    for (uint64_t i = 0; i < s.waits; ++i) {
      go(work.kernels[0], stream);
      finish(stream);
    }
    wait_ns.push_back(ns_each(begin, s.waits));
  }
  void iterate(const Work& work, CUstream stream, uint64_t kernels) {
    constexpr uint64_t kIterations = 4;
    const uint64_t begin = now_ns();
    for (uint64_t i = 0; i < kIterations; ++i) {
      check(calls.copy(work.input, work.data.data(), work.data.size(), stream),
            "cuMemcpyHtoDAsync");
      for (uint64_t k = 0; k < kernels; ++k) go(work.kernels[k % work.kernels.size()], stream);
      finish(stream);
    }
    iteration_ns.push_back(ns_each(begin, kIterations));
  }
  // Prints each figure that was taken: its median, and the median over the turns of the way's time
  // to the driver's in the same turn.
  void print(JsonLine line, const Way& driver) const {
    const auto add = [&](const char* figure_name, std::vector<double> Way::* figure) {
      std::vector<double> ratios;
      for (std::size_t i = 0; i < (this->*figure).size(); ++i)
        ratios.push_back((this->*figure)[i] / (driver.*figure)[i]);
      if (ratios.empty()) return;
      line.add(std::string(figure_name) + "_ns", Quantiles(this->*figure).at(0.50));
      line.add(std::string(figure_name) + "_to_driver", Quantiles(ratios).at(0.50));
    };
    add("launch", &Way::launch_ns);
    add("wait", &Way::wait_ns);
    add("iteration", &Way::iteration_ns);
    line.print();
  }
  void forget() { launch_ns.clear(), wait_ns.clear(), iteration_ns.clear(); }
};

int run(const Settings& s) {
  const Work work(s);
  const Driver driver;
  std::vector<CUstream> streams{nullptr};
  if (s.legacy == 0) {
    streams.clear();
    while (streams.size() < kStreams) streams.push_back(work.session().new_stream());
  }
  const Calls own{driver.cuLaunchKernel,       driver.cuStreamSynchronize,
                  driver.cuMemcpyHtoDAsync_v2, driver.cuStreamBeginCapture_v2,
                  driver.cuStreamEndCapture,   driver.cuGraphInstantiateWithFlags,
                  driver.cuGraphLaunch};
  const Calls of_programs{cuLaunchKernel,       cuStreamSynchronize,
                          cuMemcpyHtoDAsync_v2, cuStreamBeginCapture_v2,
                          cuStreamEndCapture,   cuGraphInstantiateWithFlags,
                          cuGraphLaunch};
  std::array<Way, 3> ways{
      Way{.name = "driver", .calls = own, .streams = streams},
      Way{.name = "driver green",
          .calls = own,
          .streams = driver.green_streams(work.session(), s.green_sms)},
      Way{.name = "program", .calls = of_programs, .streams = streams},
  };
  if (s.graph != 0)
    for (Way& way : ways) way.make_graph(work.kernels[0], s.graph);
  for (uint64_t turn = 0; turn < s.warm_up + s.turns; ++turn) {
    if (turn == s.warm_up)
      for (Way& way : ways) way.forget();
    // Each order comes equally often: a way that follows one with the same streams is 0.5 % faster.
    for (uint64_t i = 0; i < ways.size(); ++i) {
      const uint64_t step = turn % 2 == 0 ? i : ways.size() - i;
      ways[(turn + step) % ways.size()].turn(work, turn, s);
    }
  }
  for (const Way& way : ways)
    way.print(
        JsonLine()
            .add("way", way.name)
            .add("device", work.session().device_name())
            .add("turns", s.turns)
            .add("warm_up", s.warm_up)
            .add("iterate", s.iterate)
            .add("graph", s.graph)
            .add("is_past_shim", static_cast<uint64_t>(way.calls.launch == driver.cuLaunchKernel)),
        ways[0]);
  return 0;
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("launches", "the host's cost of a launch past the shim and through it, in ns.")
