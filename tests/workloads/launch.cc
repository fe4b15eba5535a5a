// SPDX-License-Identifier: Apache-2.0
// launch: measures what a launch of an empty kernel costs the host, and what a launch and the wait
// for it cost, to be compared with and without other programs on the GPU.
#include <vector>

#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/gpu_session.h"
#include "tests/workloads/common/json_line.h"
#include "tests/workloads/common/quantiles.h"

namespace gpushare::workloads {
namespace {

// After so many launches the queue is emptied, outside the measured time, because a full queue
// would make the host wait for the GPU.
constexpr uint64_t kLaunchesPerBatch = 500;

struct Settings {
  uint64_t count = 100'000, sync_count = 20'000, rounds = 1, streams = 1, start_at = 0, device = 0;

  explicit Settings(Flags& flags) {
    flags.add("--count", &count, "launches", "--sync-count", &sync_count,
              "launches with a wait after each", "--rounds", &rounds,
              "do both so often, and print the medians of each round", "--streams", &streams,
              "streams to launch to in turn", "--start-at", &start_at,
              "CLOCK_MONOTONIC ns to begin at, 0: now");
    flags.limit("--count", 1);
    flags.limit("--sync-count", 1);
    flags.limit("--rounds", 1, 10'000);
    flags.limit("--streams", 1, 256);
    flags.parse(&device);
  }
};

class Launcher {
 public:
  Launcher(const GpuSession& session, const Settings& s) : kernel_(session.kernel("gs_empty")) {
    for (uint64_t i = 0; i < s.streams; ++i) streams_.push_back(session.new_stream());
  }

  // The nanoseconds of each launch.
  std::vector<double> launch_many(uint64_t count) { return measure(count, false); }
  // The nanoseconds of each launch and the wait for it.
  std::vector<double> launch_and_wait(uint64_t count) { return measure(count, true); }

 private:
  std::vector<double> measure(uint64_t count, bool waits) {
    std::vector<double> took;
    took.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t begin = now_ns();
      launch(kernel_, kShape, stream(i));
      if (waits) check(cuStreamSynchronize(stream(i)), "cuStreamSynchronize");
      took.push_back(static_cast<double>(now_ns() - begin));
      if (!waits && i % kLaunchesPerBatch == kLaunchesPerBatch - 1)
        check(cuCtxSynchronize(), "cuCtxSynchronize");
    }
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    return took;
  }

  static constexpr LaunchShape kShape{1, 32};
  CUstream stream(uint64_t i) const { return streams_[i % streams_.size()]; }

  const CUfunction kernel_;
  std::vector<CUstream> streams_;
};

void append(std::vector<double>& all, const std::vector<double>& some) {
  all.insert(all.end(), some.begin(), some.end());
}

int run(const Settings& s) {
  const GpuSession session(s.device, CU_CTX_SCHED_SPIN);
  Launcher launcher(session, s);
  launcher.launch_many(kLaunchesPerBatch);
  sleep_until_ns(s.start_at);

  std::vector<double> launch_ns, sync_ns;
  for (uint64_t round = 0; round < s.rounds; ++round) {
    const uint64_t begin = now_ns();
    const std::vector<double> launches = launcher.launch_many(s.count);
    const std::vector<double> syncs = launcher.launch_and_wait(s.sync_count);
    if (s.rounds > 1)
      JsonLine()
          .add("begin_ns", begin)
          .add("end_ns", now_ns())
          .add("launch_p50_ns", Quantiles(launches).at(0.50))
          .add("sync_p50_ns", Quantiles(syncs).at(0.50))
          .print();
    append(launch_ns, launches);
    append(sync_ns, syncs);
  }

  const Quantiles launches(launch_ns), syncs(sync_ns);
  JsonLine("launch", session.device_name())
      .add("count", s.count)
      .add("rounds", s.rounds)
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

GS_WORKLOAD_MAIN("launch", "the host's cost of launching an empty kernel, in ns.")
