// SPDX-License-Identifier: Apache-2.0
// beside: rounds of a launch in each of two streams and a wait for both; then one of the two runs a
// kernel that never ends, and the rounds go on in the other one until the program is killed.
#include "intercept/cuda/kernel_math.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/gpu_session.h"

namespace gpushare::workloads {
namespace {

struct Settings {
  uint64_t rounds = 100, pause_us = 1000, device = 0;
  std::string wait = "streams";

  explicit Settings(Flags& flags) {
    flags.add("--rounds", &rounds, "after which everything has ended, before that kernel",
              "--pause-us", &pause_us, "between rounds", "--wait", &wait,
              "for what: streams, context or events");
    flags.parse(&device);
    if (wait != "streams" && wait != "context" && wait != "events")
      flags.fail("--wait is streams, context or events");
  }
};

[[noreturn]] int run(const Settings& s) {
  const GpuSession session(s.device, CU_CTX_SCHED_BLOCKING_SYNC);
  const CUfunction empty = session.kernel("gs_empty"), endless = session.kernel("gs_endless");
  const CUstream streams[] = {session.new_stream(), session.new_stream()};
  const CUevent ends[] = {session.new_event(CU_EVENT_DISABLE_TIMING),
                          session.new_event(CU_EVENT_DISABLE_TIMING)};
  const CUdeviceptr memory = session.new_zeroed(64);
  const auto play = [&](size_t count) {
    for (size_t i = 0; i < count; ++i) {
      launch(empty, {1, 1}, streams[i]);
      check(cuEventRecord(ends[i], streams[i]), "cuEventRecord");
    }
    for (size_t i = 0; i < count; ++i) {
      if (s.wait == "streams") check(cuStreamSynchronize(streams[i]), "cuStreamSynchronize");
      if (s.wait == "events") check(cuEventSynchronize(ends[i]), "cuEventSynchronize");
    }
    if (s.wait == "context" && count == 2) check(cuCtxSynchronize(), "cuCtxSynchronize");
    sleep_until_ns(now_ns() + s.pause_us * 1000);
  };
  for (uint64_t round = 0; round < s.rounds; ++round) play(2);
  launch(endless, {1, 32}, streams[1], memory, memory + 16, memory + 32, 1u, 16u,
         kernels::kRound.mul, kernels::kRound.add);
  while (true) play(1);
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("beside", "short kernels, in the end beside one that never ends.")
