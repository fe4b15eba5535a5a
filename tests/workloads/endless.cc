// SPDX-License-Identifier: Apache-2.0
// endless: one kernel that fills the GPU and never ends by itself. Its blocks count their turns in
// host memory, where they can be read at any instant while the kernel runs: how fast it gets on, or
// that it stands still, shows within a few microseconds.
#include <algorithm>
#include <atomic>
#include <vector>

#include "intercept/cuda/kernel_math.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/gpu_session.h"
#include "tests/workloads/common/json_line.h"
#include "tests/workloads/common/progress_meter.h"
#include "tests/workloads/common/verdict.h"

namespace gpushare::workloads {
namespace {

constexpr uint32_t kSeed = 7;
// With 71 units a turn, an H200 alone makes about 57,000 turns per ms (132 blocks, 2.3 us each).
constexpr uint64_t kUnitsPerTurn = 71;
constexpr uint64_t kNsPerMs = 1'000'000;

struct Settings {
  double seconds = 3, measure_from = 0, measure_to = 0;
  uint64_t start_at = 0, report_ms = 0, units_per_turn = kUnitsPerTurn, blocks_per_sm = 1,
           device = 0;

  explicit Settings(Flags& flags) {
    flags.add("--seconds", &seconds, "how long to run", "--start-at", &start_at,
              "CLOCK_MONOTONIC ns to begin at, 0: now", "--measure-from", &measure_from,
              "turns_per_ms counts from so many s after the start", "--measure-to", &measure_to,
              "... to so many s, 0: the end", "--report-ms", &report_ms,
              "print progress so often, 0: never", "--units-per-turn", &units_per_turn,
              "work units of 16 rounds in a turn", "--blocks-per-sm", &blocks_per_sm,
              "blocks of 256 threads on each SM");
    flags.limit("--units-per-turn", 1, 1'000'000);
    flags.limit("--blocks-per-sm", 1, 8);
    flags.parse(&device);
  }
};

// Host memory that the GPU reads and writes while the kernel runs.
class SharedCounters {
 public:
  SharedCounters(const GpuSession& session, unsigned blocks)
      : blocks_(blocks),
        sums_(session.new_zeroed(blocks * sizeof(uint32_t))),
        bytes_((blocks + 1) * sizeof(uint64_t)) {
    void* memory = nullptr;
    check(cuMemHostAlloc(&memory, bytes_, CU_MEMHOSTALLOC_DEVICEMAP), "cuMemHostAlloc");
    turns_ = static_cast<uint64_t*>(memory);
    std::fill_n(turns_, blocks + 1, 0);
    check(cuMemHostGetDevicePointer_v2(&device_turns_, memory, 0), "cuMemHostGetDevicePointer_v2");
  }
  ~SharedCounters() { check(cuMemFreeHost(turns_), "cuMemFreeHost"); }
  SharedCounters(const SharedCounters&) = delete;
  SharedCounters& operator=(const SharedCounters&) = delete;

  CUdeviceptr device_turns() const { return device_turns_; }
  CUdeviceptr device_stop() const { return device_turns_ + blocks_ * sizeof(uint64_t); }
  CUdeviceptr device_sums() const { return sums_; }

  // Each counter only grows; the sum of a moment is off by what is done while it is taken.
  uint64_t total() const {
    uint64_t sum = 0;
    for (unsigned i = 0; i < blocks_; ++i) sum += of_block(i);
    return sum;
  }
  uint64_t of_block(unsigned i) const {
    return std::atomic_ref(turns_[i]).load(std::memory_order_relaxed);
  }
  void ask_to_stop() { std::atomic_ref(turns_[blocks_]).store(1, std::memory_order_release); }

 private:
  const unsigned blocks_;
  const CUdeviceptr sums_;
  const size_t bytes_;
  uint64_t* turns_ = nullptr;  // one a block; behind them the stop flag
  CUdeviceptr device_turns_ = 0;
};

struct Check {
  uint32_t checksum = 0, expected = 0;
};

// Takes each block's sum back through all the rounds that the block counted, to the sum of its
// start values: one number for every length of run.
Check check_result(const SharedCounters& counters, LaunchShape shape, uint64_t units_per_turn) {
  std::vector<uint32_t> sums(shape.blocks);
  check(cuMemcpyDtoH_v2(sums.data(), counters.device_sums(), sums.size() * sizeof(uint32_t)),
        "cuMemcpyDtoH_v2");
  Check result;
  for (unsigned block = 0; block < shape.blocks; ++block) {
    const uint64_t rounds = counters.of_block(block) * units_per_turn * kernels::kRoundsPerUnit;
    const kernels::Affine back = kernels::kRound.times(rounds).inverse();
    const uint32_t weight = 2 * block + 1;
    result.checksum += weight * back.of_sum(sums[block], shape.threads);
    result.expected +=
        weight * kernels::sum_of_starts(kSeed, uint64_t{block} * shape.threads, shape.threads);
  }
  return result;
}

int run(const Settings& s) {
  const GpuSession session(s.device, CU_CTX_SCHED_BLOCKING_SYNC);
  const LaunchShape shape{session.sm_count() * static_cast<unsigned>(s.blocks_per_sm), 256};
  SharedCounters counters(session, shape.blocks);
  const CUstream stream = session.new_stream();
  const CUfunction kernel = session.kernel("gs_endless");

  sleep_until_ns(s.start_at);
  const uint64_t start = now_ns();
  const auto after_start = [&](double seconds) {
    return start + static_cast<uint64_t>(seconds * 1e9);
  };
  launch(kernel, shape, stream, counters.device_turns(), counters.device_stop(),
         counters.device_sums(), kSeed, static_cast<uint32_t>(s.units_per_turn),
         kernels::kRound.mul, kernels::kRound.add);

  const uint64_t end = after_start(s.seconds);
  ProgressMeter meter(after_start(s.measure_from),
                      s.measure_to > 0 ? after_start(s.measure_to) : end);
  const uint64_t step = (s.report_ms > 0 ? s.report_ms : 5) * kNsPerMs;
  uint64_t total = 0, now = start;
  meter.add(start, 0);
  for (uint64_t next = start + step; now < end; next += step) {
    sleep_until_ns(std::min(next, end));
    now = now_ns();
    total = counters.total();
    meter.add(now, static_cast<double>(total));
    if (s.report_ms > 0) JsonLine().add("t_ns", now).add("turns", total).print();
  }
  counters.ask_to_stop();
  check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  const uint64_t stopped = now_ns();

  const Check result = check_result(counters, shape, s.units_per_turn);
  JsonLine line("endless", session.device_name());
  line.add("blocks", shape.blocks)
      .add("turns", counters.total())
      .add("start_ns", start)
      .add("end_ns", now)
      .add("stop_us", static_cast<double>(stopped - now) / 1e3)
      .add("measured_ms", meter.measured_ms())
      .add("turns_per_ms", meter.per_ms());
  return conclude(line, result.checksum, result.checksum == result.expected,
                  "a turn was lost or done twice");
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("endless", "one kernel that runs until told to stop, and counts its turns.")
