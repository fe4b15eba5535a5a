// SPDX-License-Identifier: Apache-2.0
// periodic: a short kernel at fixed times, as a service that answers requests would start one;
// prints how long each took from the launch to the end of the wait, in host time.
#include <vector>

#include "tests/workloads/common/busy_kernel.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/json_line.h"
#include "tests/workloads/common/quantiles.h"
#include "tests/workloads/common/verdict.h"

namespace gpushare::workloads {
namespace {

struct Settings {
  double kernel_us = 100, period_us = 5000, ns_per_unit = 0;
  uint64_t samples = 500, start_at = 0, device = 0, report_ms = 0;

  explicit Settings(Flags& flags) {
    flags.add("--kernel-us", &kernel_us, "length of the kernel when alone, us; 0: an empty kernel",
              "--period-us", &period_us, "from one launch to the next, us", "--samples", &samples,
              "how many", "--start-at", &start_at, "CLOCK_MONOTONIC ns to begin at, 0: now",
              "--ns-per-unit", &ns_per_unit, "length of a unit of work, 0: measure it",
              "--report-ms", &report_ms, "print each latency if not 0");
    flags.limit("--samples", 1);
    flags.parse(&device);
  }
};

int run(const Settings& s) {
  const GpuSession session(s.device, CU_CTX_SCHED_SPIN);
  BusyKernel kernel(session, 4);
  const CUstream stream = session.new_stream();
  kernel.use_ns_per_unit(s.ns_per_unit, stream);
  const uint32_t units = s.kernel_us > 0 ? kernel.units_for_us(s.kernel_us) : 0;

  sleep_until_ns(s.start_at);
  const uint64_t start = now_ns();
  std::vector<double> latencies_us;
  latencies_us.reserve(s.samples);
  for (uint64_t i = 0; i < s.samples; ++i) {
    sleep_until_ns(start + static_cast<uint64_t>(static_cast<double>(i) * s.period_us * 1000));
    const uint64_t begin = now_ns();
    kernel.submit(stream, static_cast<uint32_t>(i), units);
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    const uint64_t end = now_ns();
    latencies_us.push_back(static_cast<double>(end - begin) / 1000);
    if (s.report_ms > 0) JsonLine().add("t_ns", end).add("latency_us", latencies_us.back()).print();
  }

  const uint32_t checksum = kernel.checksum();
  const Quantiles quantiles(latencies_us);
  JsonLine line("periodic", session.device_name());
  line.add("samples", s.samples)
      .add("kernel_us", units * kernel.ns_per_unit() / 1000)
      .add("p50_us", quantiles.at(0.50))
      .add("p90_us", quantiles.at(0.90))
      .add("p99_us", quantiles.at(0.99))
      .add("p999_us", quantiles.at(0.999))
      .add("max_us", quantiles.max())
      .add("min_us", quantiles.min())
      .add("mean_us", quantiles.mean())
      .add("ns_per_unit", kernel.ns_per_unit());
  return conclude(line, checksum, checksum == kernel.expected_checksum(), kKernelsAtFault);
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("periodic", "a short kernel at fixed times; prints the latency of launch + wait.")
