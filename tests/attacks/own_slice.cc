// SPDX-License-Identifier: Apache-2.0
// own_slice: works without a pause, and gives itself a long time slice again and again, as the
// driver lets every process do where the kernel module does not refuse it. It runs on the real
// driver and, with GPUSHARE_SIM, on the simulated GPU.
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/attacks/open_gpu.h"
#include "tests/workloads/common/busy_kernel.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/json_line.h"

namespace gpushare::workloads {
namespace {

struct Settings {
  double seconds = 60, kernel_us = 2000, ns_per_unit = 0;
  uint64_t slice_us = 100'000, pause_ms = 20, device = 0;

  explicit Settings(Flags& flags) {
    flags.add("--seconds", &seconds, "how long", "--slice-us", &slice_us, "the slice to set",
              "--pause-ms", &pause_ms, "between two times", "--kernel-us", &kernel_us,
              "length of its kernels", "--ns-per-unit", &ns_per_unit,
              "length of a unit of work, 0: measure it");
    flags.limit("--slice-us", 1);
    flags.parse(&device);
  }
};

// Its own channel groups.
std::vector<GroupRef> own_groups(Gpu& gpu) {
  std::vector<GroupRef> groups;
  const auto found = gpu.attach(::getpid())->finish();
  if (!found) return groups;
  for (const DriverEvent& event : *found)
    if (const auto* group = std::get_if<GroupCreated>(&event.what))
      groups.push_back({event.process, group->fd, group->client, group->group});
  return groups;
}

int run(const Settings& s) {
  const GpuSession session(s.device, CU_CTX_SCHED_BLOCKING_SYNC);
  auto gpu = open_gpu();
  if (!gpu) return fmt::print(stderr, "{}\n", gpu.error().message()), 1;
  const std::vector<GroupRef> groups = own_groups(**gpu);
  if (groups.empty()) return fmt::print(stderr, "it does not find its own groups\n"), 1;
  std::atomic<bool> is_over = false;
  std::atomic<uint64_t> times = 0;
  std::thread setter([&] {
    for (; !is_over; std::this_thread::sleep_for(std::chrono::milliseconds(s.pause_ms)))
      for (const GroupRef& group : groups)
        if ((*gpu)->set_slice(group, Micros(static_cast<int64_t>(s.slice_us)))) ++times;
  });
  BusyKernel kernel(session, 4);
  const CUstream stream = session.new_stream();
  kernel.use_ns_per_unit(s.ns_per_unit, stream);
  const uint64_t end = now_ns() + static_cast<uint64_t>(s.seconds * 1e9);
  while (now_ns() < end) {
    for (uint32_t i = 0; i < 8; ++i) kernel.submit(stream, i, kernel.units_for_us(s.kernel_us));
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    JsonLine().add("times_set", times.load()).print();
  }
  is_over = true;
  setter.join();
  return 0;
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("own_slice", "gives itself a long time slice again and again.")
