// SPDX-License-Identifier: Apache-2.0
// spin: keeps the GPU busy with kernels one after another, of one length or of mixed lengths,
// several of them queued at any time. Shares are measured by its progress in work units, which are
// the same amount of work for every program on one GPU.
#include <cmath>
#include <vector>

#include "tests/workloads/busy_kernel.h"
#include "tests/workloads/flags.h"
#include "tests/workloads/json_line.h"
#include "tests/workloads/progress_meter.h"
#include "tests/workloads/random.h"

namespace gpushare::workloads {
namespace {

struct Settings {
  double kernel_us = 2000, kernel_us_min = 0, kernel_us_max = 0;
  double seconds = 3, measure_from = 0, measure_to = 0;
  uint64_t count = 0, depth = 8, seed = 1, start_at = 0, report_ms = 0, device = 0;
  uint64_t blocks_per_sm = 4;
  double ns_per_unit = 0;
};

Settings read_settings(int argc, char** argv) {
  Settings s;
  Flags flags("spin", "queues kernels without a pause and reports how much work was done.");
  flags.add("--kernel-us", &s.kernel_us, "length of a kernel when alone, us");
  flags.add("--kernel-us-min", &s.kernel_us_min, "with --kernel-us-max: mixed, log-uniform");
  flags.add("--kernel-us-max", &s.kernel_us_max, "the longest of the mixed kernels");
  flags.add("--seconds", &s.seconds, "how long to go on submitting");
  flags.add("--count", &s.count, "kernels to run instead, 0: by --seconds");
  flags.add("--depth", &s.depth, "kernels queued at any time");
  flags.add("--seed", &s.seed, "of the mixed lengths and the kernels' data");
  flags.add("--start-at", &s.start_at, "CLOCK_MONOTONIC ns to begin at, 0: now");
  flags.add("--measure-from", &s.measure_from,
            "units_per_ms counts from so many s after the start");
  flags.add("--measure-to", &s.measure_to, "... to so many s, 0: the end");
  flags.add("--report-ms", &s.report_ms, "print progress so often, 0: never");
  flags.add("--ns-per-unit", &s.ns_per_unit, "length of a unit of work, 0: measure it");
  flags.add("--blocks-per-sm", &s.blocks_per_sm, "blocks of 256 threads on each SM");
  flags.add("--device", &s.device, "CUDA device");
  flags.parse(argc, argv);
  if (s.depth == 0) flags.fail("--depth must be at least 1");
  if (s.blocks_per_sm == 0) flags.fail("--blocks-per-sm must be at least 1");
  if ((s.kernel_us_min > 0) != (s.kernel_us_max > 0) || s.kernel_us_min > s.kernel_us_max)
    flags.fail("--kernel-us-min and --kernel-us-max go together, the smaller first");
  return s;
}

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

int run(const Settings& s) {
  const GpuSession session(s.device, CU_CTX_SCHED_BLOCKING_SYNC);
  BusyKernel kernel(session, static_cast<unsigned>(s.blocks_per_sm));
  const CUstream stream = session.new_stream();
  if (s.ns_per_unit > 0) {
    kernel.set_ns_per_unit(s.ns_per_unit);
  } else {
    kernel.calibrate(stream);
  }

  struct InFlight {
    CUevent done;
    uint32_t units;
  };
  std::vector<InFlight> ring(s.depth);
  for (InFlight& slot : ring)
    slot = {session.new_event(CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC), 0};

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
  uint64_t submitted = 0, completed = 0, units = 0, next_report = start;
  uint64_t now = start;
  meter.add(start, 0);
  const auto may_submit = [&] { return s.count > 0 ? submitted < s.count : now < deadline; };
  while (true) {
    while (may_submit() && submitted - completed < s.depth) {
      InFlight& slot = ring[submitted++ % s.depth];
      slot.units = kernel.units_for_us(lengths.next_us());
      kernel.submit(stream, static_cast<uint32_t>(seeds.next()), slot.units);
      check(cuEventRecord(slot.done, stream), "cuEventRecord");
    }
    if (completed == submitted) break;
    const InFlight& oldest = ring[completed++ % s.depth];
    check(cuEventSynchronize(oldest.done), "cuEventSynchronize");
    now = now_ns();
    units += oldest.units;
    meter.add(now, static_cast<double>(units));
    if (s.report_ms > 0 && now >= next_report) {
      JsonLine().add("t_ns", now).add("kernels", completed).add("units", units).print();
      next_report = now + s.report_ms * 1'000'000;
    }
  }

  const uint32_t checksum = kernel.checksum();
  const bool is_right = checksum == kernel.expected_checksum();
  JsonLine()
      .add("workload", "spin")
      .add("device", session.device_name())
      .add("kernels", completed)
      .add("units", units)
      .add("ns_per_unit", kernel.ns_per_unit())
      .add("start_ns", start)
      .add("end_ns", now)
      .add("measured_ms", meter.measured_ms())
      .add("units_per_ms", meter.per_ms())
      .add("gpu_share", meter.per_ms() * kernel.ns_per_unit() / 1e6)
      .add("checksum", fmt::format("{:08x}", checksum))
      .add("verified", is_right)
      .print();
  if (!is_right) die("wrong result: a kernel did not do exactly its work");
  return 0;
}

}  // namespace
}  // namespace gpushare::workloads

int main(int argc, char** argv) {
  gpushare::workloads::set_program_name("spin");
  return gpushare::workloads::run(gpushare::workloads::read_settings(argc, argv));
}
