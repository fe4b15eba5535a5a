// SPDX-License-Identifier: Apache-2.0
// churn: makes a context, does a little work and ends, for loops that start and end many programs.
#include "tests/workloads/common/busy_kernel.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/json_line.h"
#include "tests/workloads/common/verdict.h"

namespace gpushare::workloads {
namespace {

struct Settings {
  uint64_t kernels = 4, units = 1000, seed = 1, hold_ms = 0, device = 0;

  explicit Settings(Flags& flags) {
    flags.add("--kernels", &kernels, "how many", "--units", &units,
              "work units of 16 rounds in each", "--seed", &seed, "of the kernels' data",
              "--hold-ms", &hold_ms, "keep the idle context so long before the end");
    flags.limit("--units", 0, UINT32_MAX);
    flags.parse(&device);
  }
};

int run(const Settings& s) {
  const uint64_t begin = now_ns();
  const GpuSession session(s.device, CU_CTX_SCHED_BLOCKING_SYNC);
  const uint64_t started = now_ns();
  BusyKernel kernel(session, 1);
  const CUstream stream = session.new_stream();
  for (uint64_t i = 0; i < s.kernels; ++i)
    kernel.submit(stream, static_cast<uint32_t>(s.seed + i), static_cast<uint32_t>(s.units));
  const uint32_t checksum = kernel.checksum();
  sleep_until_ns(now_ns() + s.hold_ms * 1'000'000);
  JsonLine line("churn", session.device_name());
  line.add("start_ms", static_cast<double>(started - begin) / 1e6)
      .add("total_ms", static_cast<double>(now_ns() - begin) / 1e6);
  return conclude(line, checksum, checksum == kernel.expected_checksum(), kKernelsAtFault);
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("churn", "a short life: context, a few kernels, checksum, end.")
