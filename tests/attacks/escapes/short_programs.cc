// SPDX-License-Identifier: Apache-2.0
// short_programs: does its work in programs that end before their use is charged, so that the next
// one starts without debts. Each makes a context, runs --program-ms of kernels and exits; --lanes
// of them run at a time. With --flee-ms a program that gets nothing done for so long is killed,
// because it is frozen, and another one takes its place. With --slots each has a slot as the shim
// has one, in which it counts nothing, so that it looks like a program that starts. At the end it
// prints how much was done.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <new>
#include <vector>

#include "tests/attacks/own_slot.h"
#include "tests/workloads/common/busy_kernel.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/json_line.h"

namespace gpushare::workloads {
namespace {

struct Settings {
  double program_ms = 50, kernel_us = 2000, seconds = 6, ns_per_unit = 0;
  uint64_t lanes = 1, flee_ms = 0, slots = 0, device = 0;

  explicit Settings(Flags& flags) {
    flags.add("--program-ms", &program_ms, "GPU time of one program", "--kernel-us", &kernel_us,
              "length of its kernels", "--seconds", &seconds, "how long to start programs",
              "--ns-per-unit", &ns_per_unit, "length of a unit of work, 0: measure it", "--lanes",
              &lanes, "programs at a time", "--flee-ms", &flee_ms,
              "kill a program that has stood still for so long, 0: never", "--slots", &slots,
              "1: each asks for a slot, and counts no launch in it");
    flags.limit("--lanes", 1);
    flags.parse(&device);
  }
};

// What all programs count in; shared by fork.
struct Counters {
  std::atomic<uint64_t> kernels{0}, programs{0};
  std::atomic<uint64_t> progress[256];  // of each lane: when a kernel of it ended last, ns; 0: none
};

[[noreturn]] void one_program(const Settings& s, double ns_per_unit, Counters& counters,
                              size_t lane) {
  {
    if (s.slots != 0 && ask_for_a_slot() == nullptr) die("no slot");
    const GpuSession session(s.device, CU_CTX_SCHED_BLOCKING_SYNC);
    BusyKernel kernel(session, 4);
    kernel.set_ns_per_unit(ns_per_unit);
    const CUstream stream = session.new_stream();
    counters.progress[lane].store(now_ns());  // before that it cannot stand still
    std::vector<CUevent> ends;
    for (double ms = 0; ms < s.program_ms; ms += s.kernel_us / 1000) {
      kernel.submit(stream, 1, kernel.units_for_us(s.kernel_us));
      ends.push_back(session.new_event(CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
      check(cuEventRecord(ends.back(), stream), "cuEventRecord");
    }
    for (const CUevent end : ends) {
      check(cuEventSynchronize(end), "cuEventSynchronize");
      counters.kernels.fetch_add(1);
      counters.progress[lane].store(now_ns());
    }
    counters.programs.fetch_add(1);
  }
  ::_exit(0);
}

// In a program of its own: a process that has used CUDA cannot fork others that do.
double measured_unit(const Settings& s) {
  int result[2];
  if (::pipe(result) != 0) die("pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    const GpuSession session(s.device, CU_CTX_SCHED_BLOCKING_SYNC);
    const double ns = BusyKernel(session, 4).calibrate(session.new_stream());
    ::_exit(::write(result[1], &ns, sizeof ns) == sizeof ns ? 0 : 1);
  }
  double ns = 0;
  if (::read(result[0], &ns, sizeof ns) != sizeof ns) die("no unit of work was measured");
  ::waitpid(child, nullptr, 0);
  return ns;
}

int run(const Settings& s) {
  void* const page =
      ::mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) die("mmap");
  auto& counters = *new (page) Counters;
  const double ns_per_unit = s.ns_per_unit > 0 ? s.ns_per_unit : measured_unit(s);
  const uint64_t start = now_ns(), end = start + static_cast<uint64_t>(s.seconds * 1e9);
  std::map<pid_t, size_t> lanes;
  std::vector<size_t> unused;
  for (size_t i = 0; i < std::min<uint64_t>(s.lanes, 256); ++i) unused.push_back(i);
  uint64_t fled = 0;
  while (now_ns() < end) {
    while (!unused.empty()) {
      const size_t lane = unused.back();
      counters.progress[lane].store(0);
      const pid_t child = ::fork();
      if (child < 0) die("fork");
      if (child == 0) one_program(s, ns_per_unit, counters, lane);
      lanes[child] = lane;
      unused.pop_back();
    }
    for (const auto& [pid, lane] : lanes) {
      const uint64_t last = counters.progress[lane].load();
      if (s.flee_ms == 0 || last == 0 || now_ns() < last + s.flee_ms * 1'000'000) continue;
      ::kill(pid, SIGKILL);
      ++fled;
      counters.progress[lane].store(0);
    }
    for (pid_t gone = 0; (gone = ::waitpid(-1, nullptr, WNOHANG)) > 0;) {
      unused.push_back(lanes.at(gone));
      lanes.erase(gone);
    }
    sleep_until_ns(now_ns() + 200'000);
  }
  const uint64_t stopped = now_ns();
  const double done_ms = static_cast<double>(counters.kernels.load()) * s.kernel_us / 1000;
  for (const auto& [pid, lane] : lanes) ::kill(pid, SIGKILL);
  while (::wait(nullptr) > 0) continue;
  const double elapsed_ms = static_cast<double>(stopped - start) / 1e6;
  JsonLine()
      .add("programs", counters.programs.load())
      .add("fled", fled)
      .add("done_ms", done_ms)
      .add("elapsed_ms", elapsed_ms)
      .add("gpu_share", done_ms / elapsed_ms)
      .print();
  return 0;
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("short_programs", "works in many short programs, one after the other.")
