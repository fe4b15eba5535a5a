// SPDX-License-Identifier: Apache-2.0
// outlived: fills a stream with work and ends, while a child, which never calls the driver, keeps
// the descriptors that it has inherited: the driver ends a context only when the last of them is
// closed. With --by-exec it does not end, but becomes `sleep`, which has none of them. The child
// counts what of that work is done from then on, in memory that both share and that the GPU writes,
// and prints it every second. A simulated GPU writes nothing there once the program has ended
// (--counted 0).
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "tests/workloads/common/busy_kernel.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/json_line.h"

namespace gpushare::workloads {
namespace {

struct Settings {
  double seconds = 8, ns_per_unit = 129.293, kernel_us = 20'000;
  uint64_t kernels = 400, counted = 1, by_exec = 0, device = 0;

  explicit Settings(Flags& flags) {
    flags.add("--seconds", &seconds, "how long the child counts", "--kernel-us", &kernel_us,
              "length of a kernel", "--kernels", &kernels, "how many are put into the stream",
              "--counted", &counted, "whether the GPU says how many are done; 0: nobody does",
              "--by-exec", &by_exec, "1: becomes another program instead of ending",
              "--ns-per-unit", &ns_per_unit, "length of a unit of work, 0: measure it");
    flags.parse(&device);
  }
};

// The GPU writes `done`: so many kernels have ended. The parent writes the others.
struct Shared {
  std::atomic<uint32_t> done{0}, queued{0}, has_left{0};
};

[[noreturn]] void leave(const Settings& s, Shared& shared) {
  shared.has_left.store(1);
  if (s.by_exec != 0) ::execl("/bin/sleep", "sleep", "600", nullptr);
  ::_exit(0);
}

[[noreturn]] void count(const Settings& s, const Shared& shared) {
  while (shared.has_left.load() == 0) sleep_until_ns(now_ns() + 1'000'000);
  const uint32_t before = shared.done.load();
  const uint64_t start = now_ns(), end = start + static_cast<uint64_t>(s.seconds * 1e9);
  for (uint64_t next = start; next < end;) {
    next = std::min(next + 1'000'000'000, end);
    sleep_until_ns(next);
    const double elapsed_ms = static_cast<double>(now_ns() - start) / 1e6,
                 done_ms = (shared.done.load() - before) * s.kernel_us / 1000;
    JsonLine line;
    line.add("done_ms", done_ms).add("elapsed_ms", elapsed_ms);
    if (next == end)
      line.add("queued", uint64_t{shared.queued.load()})
          .add("done_before", uint64_t{before})
          .add("gpu_share", done_ms / elapsed_ms);
    line.print();
  }
  ::_exit(0);
}

int run(const Settings& s) {
  void* const page =
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) die("mmap");
  auto& shared = *new (page) Shared;
  const GpuSession session(s.device, CU_CTX_SCHED_BLOCKING_SYNC);
  BusyKernel kernel(session, 4);
  const CUstream stream = session.new_stream();
  kernel.use_ns_per_unit(s.ns_per_unit, stream);
  const pid_t child = ::fork();
  if (child < 0) die("fork");
  if (child == 0) count(s, shared);
  if (s.counted == 0) {
    for (uint32_t i = 0; i < s.kernels; ++i)
      kernel.submit(stream, 1, kernel.units_for_us(s.kernel_us));
    leave(s, shared);
  }
  check(cuMemHostRegister_v2(page, 4096, CU_MEMHOSTREGISTER_DEVICEMAP), "cuMemHostRegister_v2");
  CUdeviceptr done = 0;
  check(cuMemHostGetDevicePointer_v2(&done, page, 0), "cuMemHostGetDevicePointer_v2");
  for (uint32_t i = 1; i <= s.kernels; ++i) {
    kernel.submit(stream, 1, kernel.units_for_us(s.kernel_us));
    check(cuStreamWriteValue32_v2(stream, done, i, CU_STREAM_WRITE_VALUE_DEFAULT),
          "cuStreamWriteValue32_v2");
    shared.queued.store(i);
  }
  leave(s, shared);
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("outlived", "leaves work behind that goes on after its program has ended.")
