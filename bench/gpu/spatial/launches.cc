// SPDX-License-Identifier: Apache-2.0
// launches: what a launch of an empty kernel, and a launch and the wait for it, cost the host: past
// the shim and through it, in turn in one process, as two processes differ by more than the shim
// costs. To be run under it (shim_drive, or `gpushare run --shim`).
//
//   driver        the driver's own functions, streams of the process's context
//   driver green  the same, streams of a green context of --green-sms
//   program       as any program calls, so through the shim if there is one; the first way's
//   streams
// With --legacy 1 the first and the last use the legacy default stream.
//
// Streams differ by 2 %, as they have different hardware queues: a way has several, in turn.
// The ways come one after the other in every turn, the first of them another one each time; a ratio
// is the median over the turns of a way's time to the driver's in the same turn.
#include <dlfcn.h>

#include <array>
#include <vector>

#include "intercept/shim/elf_lookup.h"
#include "tests/workloads/flags.h"
#include "tests/workloads/gpu_session.h"
#include "tests/workloads/green_context.h"
#include "tests/workloads/json_line.h"
#include "tests/workloads/quantiles.h"

namespace gpushare::workloads {
namespace {

struct Settings {
  uint64_t turns = 2000, launches = 200, waits = 50, green_sms = 120, legacy = 0, device = 0;
};

Settings read_settings(int argc, char** argv) {
  Settings s;
  Flags flags("launches", "the host's cost of a launch past the shim and through it, in ns.");
  flags.add("--turns", &s.turns, "of all ways");
  flags.add("--launches", &s.launches, "in each turn and way");
  flags.add("--waits", &s.waits, "launches with a wait after each, the same");
  flags.add("--green-sms", &s.green_sms, "of the green context past the shim");
  flags.add("--legacy", &s.legacy, "1: into the legacy default stream");
  flags.add("--device", &s.device, "CUDA device");
  flags.parse(argc, argv);
  if (s.turns == 0 || s.turns > 1'000'000) flags.fail("--turns must be 1 to 1000000");
  if (s.launches == 0 || s.launches > 500) flags.fail("--launches must be 1 to 500");
  if (s.waits == 0 || s.waits > 500) flags.fail("--waits must be 1 to 500");
  if (s.legacy > 1) flags.fail("--legacy must be 0 or 1");
  return s;
}

constexpr std::size_t kStreams = 4;

// The driver's functions, which no preloaded library stands in for.
struct Driver {
  link_map* const library = open();
// A declaration: nothing to put in parentheses. NOLINTNEXTLINE(bugprone-macro-parentheses)
#define GPUSHARE_DRIVER(name) decltype(&::name) name = find<decltype(&::name)>(#name)
  GPUSHARE_DRIVER(cuLaunchKernel);
  GPUSHARE_DRIVER(cuStreamSynchronize);
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

struct Way {
  const char* name;
  decltype(&::cuLaunchKernel) launch;
  decltype(&::cuStreamSynchronize) wait;
  std::vector<CUstream> streams;
  std::vector<double> launch_ns = {}, wait_ns = {}, launch_ratios = {},
                      wait_ratios = {};  // by turn

  void go(CUfunction kernel, CUstream stream) const {
    check(launch(kernel, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr), "cuLaunchKernel");
  }
  void turn(CUfunction kernel, uint64_t turn, const Settings& s) {
    CUstream const stream = streams[turn % streams.size()];
    uint64_t begin = now_ns();
    for (uint64_t i = 0; i < s.launches; ++i) go(kernel, stream);
    launch_ns.push_back(static_cast<double>(now_ns() - begin) / static_cast<double>(s.launches));
    check(wait(stream), "cuStreamSynchronize");
    begin = now_ns();
    for (uint64_t i = 0; i < s.waits; ++i) {
      go(kernel, stream);
      check(wait(stream), "cuStreamSynchronize");
    }
    wait_ns.push_back(static_cast<double>(now_ns() - begin) / static_cast<double>(s.waits));
  }
};

int run(const Settings& s) {
  const GpuSession session(s.device, CU_CTX_SCHED_SPIN);
  const CUfunction kernel = session.kernel("gs_empty");
  const Driver driver;
  std::vector<CUstream> streams{nullptr};
  if (s.legacy == 0) {
    streams.clear();
    while (streams.size() < kStreams) streams.push_back(session.new_stream());
  }
  std::array<Way, 3> ways{
      Way{.name = "driver",
          .launch = driver.cuLaunchKernel,
          .wait = driver.cuStreamSynchronize,
          .streams = streams},
      Way{.name = "driver green",
          .launch = driver.cuLaunchKernel,
          .wait = driver.cuStreamSynchronize,
          .streams = driver.green_streams(session, s.green_sms)},
      Way{.name = "program",
          .launch = cuLaunchKernel,
          .wait = cuStreamSynchronize,
          .streams = streams},
  };
  constexpr uint64_t kWarmUp = 20;
  for (uint64_t turn = 0; turn < kWarmUp + s.turns; ++turn) {
    if (turn == kWarmUp)
      for (Way& way : ways) way.launch_ns.clear(), way.wait_ns.clear();
    for (uint64_t i = 0; i < ways.size(); ++i) ways[(turn + i) % ways.size()].turn(kernel, turn, s);
    if (turn < kWarmUp) continue;
    for (Way& way : ways) {
      way.launch_ratios.push_back(way.launch_ns.back() / ways[0].launch_ns.back());
      way.wait_ratios.push_back(way.wait_ns.back() / ways[0].wait_ns.back());
    }
  }
  for (const Way& way : ways)
    JsonLine()
        .add("way", way.name)
        .add("device", session.device_name())
        .add("turns", s.turns)
        .add("is_past_shim", static_cast<uint64_t>(way.launch == driver.cuLaunchKernel))
        .add("launch_ns", Quantiles(way.launch_ns).at(0.50))
        .add("wait_ns", Quantiles(way.wait_ns).at(0.50))
        .add("launch_to_driver", Quantiles(way.launch_ratios).at(0.50))
        .add("wait_to_driver", Quantiles(way.wait_ratios).at(0.50))
        .print();
  return 0;
}

}  // namespace
}  // namespace gpushare::workloads

int main(int argc, char** argv) {
  gpushare::workloads::set_program_name("launches");
  return gpushare::workloads::run(gpushare::workloads::read_settings(argc, argv));
}
