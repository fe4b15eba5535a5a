// SPDX-License-Identifier: Apache-2.0
// spin: keeps the GPU, or several at once, busy with kernels one after another, of one length or of
// mixed lengths, several of them queued at any time in each of its streams. It never waits for a
// stream, only for the event behind an old kernel, as programs do that keep a queue full. Shares
// are measured by its progress in work units, which are the same amount of work for every program
// on one GPU. Each device has a thread.
#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "tests/workloads/common/busy_kernel.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/json_line.h"
#include "tests/workloads/common/progress_meter.h"
#include "tests/workloads/common/random.h"
#include "tests/workloads/common/verdict.h"

namespace gpushare::workloads {
namespace {

struct Settings {
  double kernel_us = 2000, kernel_us_min = 0, kernel_us_max = 0;
  double seconds = 3, measure_from = 0, measure_to = 0;
  uint64_t count = 0, depth = 8, streams = 1, seed = 1, start_at = 0, report_ms = 0, device = 0;
  uint64_t blocks_per_sm = 4;
  double ns_per_unit = 0;
  std::vector<uint64_t> devices{};

  explicit Settings(Flags& flags) {
    flags.add("--kernel-us", &kernel_us, "length of a kernel when alone, us", "--kernel-us-min",
              &kernel_us_min, "with --kernel-us-max: mixed, log-uniform", "--kernel-us-max",
              &kernel_us_max, "the longest of the mixed kernels", "--seconds", &seconds,
              "how long to go on submitting", "--count", &count,
              "kernels to run on each device instead, 0: by --seconds", "--depth", &depth,
              "kernels queued in each stream at any time", "--streams", &streams,
              "streams that kernels go to in turn", "--seed", &seed,
              "of the mixed lengths and the kernels' data", "--start-at", &start_at,
              "CLOCK_MONOTONIC ns to begin at, 0: now", "--measure-from", &measure_from,
              "units_per_ms counts from so many s after the start", "--measure-to", &measure_to,
              "... to so many s, 0: the end", "--report-ms", &report_ms,
              "print progress so often, 0: never", "--ns-per-unit", &ns_per_unit,
              "length of a unit of work, 0: measure it", "--blocks-per-sm", &blocks_per_sm,
              "blocks of 256 threads on each SM", "--device", &device, "CUDA device", "--devices",
              &devices, "several of them, all at once, like 0,1; instead of --device");
    flags.limit("--depth", 1);
    flags.limit("--streams", 1);
    flags.limit("--blocks-per-sm", 1);
    flags.parse();
    if (devices.empty()) devices = {device};
    for (const uint64_t one : devices)
      if (std::ranges::count(devices, one) > 1) flags.fail("--devices takes each device once");
    if ((kernel_us_min > 0) != (kernel_us_max > 0) || kernel_us_min > kernel_us_max)
      flags.fail("--kernel-us-min and --kernel-us-max go together, the smaller first");
  }
};

// The lengths of the kernels, by --seed alone.
class Lengths {
 public:
  explicit Lengths(const Settings& s) : s_(s), random_(s.seed) {}
  double next_us() {
    if (s_.kernel_us_max <= 0) return s_.kernel_us;
    return s_.kernel_us_min * std::pow(s_.kernel_us_max / s_.kernel_us_min, random_.fraction());
  }

 private:
  const Settings& s_;
  Random random_;
};

// The kernels that are queued on one device, in their order.
class Queue {
 public:
  Queue(const GpuSession& session, BusyKernel& kernel, CUstream stream, size_t depth)
      : kernel_(kernel), stream_(stream), ring_(depth) {
    for (InFlight& slot : ring_)
      slot = {session.new_event(CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC), 0};
  }

  bool is_full() const { return submitted_ - completed_ == ring_.size(); }

  // Requires that it is not full.
  void submit(uint32_t seed, uint32_t units) {
    InFlight& slot = ring_[submitted_++ % ring_.size()];
    slot.units = units;
    kernel_.submit(stream_, seed, units);
    check(cuEventRecord(slot.done, stream_), "cuEventRecord");
  }
  // Waits for the oldest kernel and returns its units. Requires that it is not empty.
  uint32_t await() {
    const InFlight& oldest = ring_[completed_++ % ring_.size()];
    check(cuEventSynchronize(oldest.done), "cuEventSynchronize");
    return oldest.units;
  }

 private:
  struct InFlight {
    CUevent done;
    uint32_t units;
  };
  BusyKernel& kernel_;
  const CUstream stream_;
  std::vector<InFlight> ring_;
  uint64_t submitted_ = 0, completed_ = 0;
};

// What was done on one device, or on all together.
struct Outcome {
  std::string device_name{};
  uint64_t kernels = 0, units = 0, start_ns = 0, end_ns = 0;
  double ns_per_unit = 0, measured_ms = 0, units_per_ms = 0, gpu_share = 0;
  uint32_t checksum = 0;
  bool is_right = false;
};

Outcome spin_on(const Settings& s, uint64_t device) {
  const GpuSession session(device, CU_CTX_SCHED_BLOCKING_SYNC);
  BusyKernel kernel(session, static_cast<unsigned>(s.blocks_per_sm));
  std::vector<Queue> queues;
  for (uint64_t i = 0; i < s.streams; ++i) {
    const CUstream stream = session.new_stream();
    if (s.ns_per_unit > 0) {
      kernel.set_ns_per_unit(s.ns_per_unit);
    } else if (i == 0) {
      kernel.calibrate(stream);
    }
    queues.emplace_back(session, kernel, stream, s.depth);
  }

  sleep_until_ns(s.start_at);
  const uint64_t start = now_ns();
  const auto after_start = [&](double seconds) {
    return start + static_cast<uint64_t>(seconds * 1e9);
  };
  const uint64_t deadline = after_start(s.seconds);
  ProgressMeter meter(after_start(s.measure_from), s.measure_to > 0 ? after_start(s.measure_to)
                                                   : s.count > 0    ? UINT64_MAX
                                                                    : deadline);
  Lengths lengths(s);
  Random seeds(~s.seed);
  uint64_t units = 0, next_report = start, now = start;
  meter.add(start, 0);
  uint64_t submitted = 0, completed = 0;
  const auto may_submit = [&] { return s.count > 0 ? submitted < s.count : now < deadline; };
  while (true) {
    for (; may_submit() && !queues[submitted % s.streams].is_full(); ++submitted)
      queues[submitted % s.streams].submit(static_cast<uint32_t>(seeds.next()),
                                           kernel.units_for_us(lengths.next_us()));
    if (completed == submitted) break;
    units += queues[completed++ % s.streams].await();
    now = now_ns();
    meter.add(now, static_cast<double>(units));
    if (s.report_ms > 0 && now >= next_report) {
      JsonLine()
          .add("t_ns", now)
          .add("device_index", device)
          .add("kernels", completed)
          .add("units", units)
          .print();
      next_report = now + s.report_ms * 1'000'000;
    }
  }
  const uint32_t checksum = kernel.checksum();
  return {.device_name = session.device_name(),
          .kernels = completed,
          .units = units,
          .start_ns = start,
          .end_ns = now,
          .ns_per_unit = kernel.ns_per_unit(),
          .measured_ms = meter.measured_ms(),
          .units_per_ms = meter.per_ms(),
          .gpu_share = meter.per_ms() * kernel.ns_per_unit() / 1e6,
          .checksum = checksum,
          .is_right = checksum == kernel.expected_checksum()};
}

// By device, in the order of --devices.
std::vector<Outcome> spin_on_all(const Settings& s) {
  std::vector<Outcome> outcomes(s.devices.size());
  std::vector<std::jthread> threads;
  for (size_t i = 1; i < s.devices.size(); ++i)
    threads.emplace_back([&, i] { outcomes[i] = spin_on(s, s.devices[i]); });
  outcomes[0] = spin_on(s, s.devices[0]);
  threads.clear();  // waits for them
  return outcomes;
}

// Work and shares add up; the times are those at which all were at work.
Outcome total_of(const std::vector<Outcome>& outcomes) {
  Outcome total = outcomes[0];
  for (size_t i = 1; i < outcomes.size(); ++i) {
    const Outcome& one = outcomes[i];
    total.kernels += one.kernels;
    total.units += one.units;
    total.start_ns = std::max(total.start_ns, one.start_ns);
    total.end_ns = std::min(total.end_ns, one.end_ns);
    total.measured_ms = std::min(total.measured_ms, one.measured_ms);
    total.units_per_ms += one.units_per_ms;
    total.gpu_share += one.gpu_share;
    total.checksum += one.checksum;
    total.is_right = total.is_right && one.is_right;
  }
  return total;
}

int run(const Settings& s) {
  const std::vector<Outcome> outcomes = spin_on_all(s);
  const Outcome total = total_of(outcomes);
  JsonLine line("spin", total.device_name);
  line.add("kernels", total.kernels)
      .add("units", total.units)
      .add("ns_per_unit", total.ns_per_unit)
      .add("start_ns", total.start_ns)
      .add("end_ns", total.end_ns)
      .add("measured_ms", total.measured_ms)
      .add("units_per_ms", total.units_per_ms)
      .add("gpu_share", total.gpu_share);
  for (size_t i = 0; i < outcomes.size() && outcomes.size() > 1; ++i) {
    const std::string device = fmt::format("device{}_", s.devices[i]);
    line.add(device + "kernels", outcomes[i].kernels)
        .add(device + "units", outcomes[i].units)
        .add(device + "units_per_ms", outcomes[i].units_per_ms)
        .add(device + "gpu_share", outcomes[i].gpu_share);
  }
  return conclude(line, total.checksum, total.is_right, kKernelsAtFault);
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("spin", "queues kernels without a pause and reports how much work was done.")
