// SPDX-License-Identifier: Apache-2.0
// launch: what a launch of an empty kernel costs the host, and what launch + wait costs: to be
// compared with and without something running beside it.
#include <vector>

#include "tests/workloads/flags.h"
#include "tests/workloads/gpu_session.h"
#include "tests/workloads/json_line.h"
#include "tests/workloads/quantiles.h"

namespace gpushare::workloads {
namespace {

// The queue of launches is emptied so often, outside the measured time: a full queue would make the
// host wait for the GPU.
constexpr uint64_t kLaunchesPerBatch = 500;

struct Settings {
  uint64_t count = 100'000, sync_count = 20'000, streams = 1, start_at = 0, device = 0;
};

Settings read_settings(int argc, char** argv) {
  Settings s;
  Flags flags("launch", "the host's cost of launching an empty kernel, in ns.");
  flags.add("--count", &s.count, "launches");
  flags.add("--sync-count", &s.sync_count, "launches with a wait after each");
  flags.add("--streams", &s.streams, "streams to launch to in turn");
  flags.add("--start-at", &s.start_at, "CLOCK_MONOTONIC ns to begin at, 0: now");
  flags.add("--device", &s.device, "CUDA device");
  flags.parse(argc, argv);
  if (s.count == 0 || s.sync_count == 0) flags.fail("--count and --sync-count must be at least 1");
  if (s.streams == 0 || s.streams > 256) flags.fail("--streams must be 1 to 256");
  return s;
}

int run(const Settings& s) {
  const GpuSession session(s.device, CU_CTX_SCHED_SPIN);
  const CUfunction kernel = session.kernel("gs_empty");
  std::vector<CUstream> streams;
  for (uint64_t i = 0; i < s.streams; ++i) streams.push_back(session.new_stream());
  const LaunchShape shape{1, 32};

  for (uint64_t i = 0; i < kLaunchesPerBatch; ++i) launch(kernel, shape, streams[i % s.streams]);
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  sleep_until_ns(s.start_at);

  std::vector<double> launch_ns;
  launch_ns.reserve(s.count);
  for (uint64_t i = 0; i < s.count; ++i) {
    const uint64_t begin = now_ns();
    launch(kernel, shape, streams[i % s.streams]);
    launch_ns.push_back(static_cast<double>(now_ns() - begin));
    if (i % kLaunchesPerBatch == kLaunchesPerBatch - 1)
      check(cuCtxSynchronize(), "cuCtxSynchronize");
  }
  check(cuCtxSynchronize(), "cuCtxSynchronize");

  std::vector<double> sync_ns;
  sync_ns.reserve(s.sync_count);
  for (uint64_t i = 0; i < s.sync_count; ++i) {
    const CUstream stream = streams[i % s.streams];
    const uint64_t begin = now_ns();
    launch(kernel, shape, stream);
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    sync_ns.push_back(static_cast<double>(now_ns() - begin));
  }

  const Quantiles launches(launch_ns), syncs(sync_ns);
  JsonLine()
      .add("workload", "launch")
      .add("device", session.device_name())
      .add("count", s.count)
      .add("streams", s.streams)
      .add("launch_p50_ns", launches.at(0.50))
      .add("launch_mean_ns", launches.mean())
      .add("launch_p99_ns", launches.at(0.99))
      .add("sync_count", s.sync_count)
      .add("sync_p50_ns", syncs.at(0.50))
      .add("sync_mean_ns", syncs.mean())
      .add("sync_p99_ns", syncs.at(0.99))
      .print();
  return 0;
}

}  // namespace
}  // namespace gpushare::workloads

int main(int argc, char** argv) {
  gpushare::workloads::set_program_name("launch");
  return gpushare::workloads::run(gpushare::workloads::read_settings(argc, argv));
}
