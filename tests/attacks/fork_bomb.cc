// SPDX-License-Identifier: Apache-2.0
// fork_bomb: starts --children processes that each use the GPU once and then live on without it, so
// that the agent must remember each of them as one of its tenant. It prints how many there are when
// all have been on the GPU, and all end with it.
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/workloads/common/busy_kernel.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/json_line.h"

namespace gpushare::workloads {
namespace {

// As many make their contexts at a time: a context takes a machine's processor for milliseconds.
constexpr uint64_t kAtOnce = 16;

struct Settings {
  uint64_t children = 1000, device = 0;

  explicit Settings(Flags& flags) {
    flags.add("--children", &children, "how many");
    flags.parse(&device);
  }
};

[[noreturn]] void live(const Settings& s, int done) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  {
    const GpuSession session(s.device, CU_CTX_SCHED_BLOCKING_SYNC);
    BusyKernel kernel(session, 1);
    kernel.submit(session.new_stream(), 1, 100);
    (void)kernel.checksum();
  }
  ::eventfd_write(done, 1);
  for (;;) ::pause();
}

int run(const Settings& s) {
  const int done = ::eventfd(0, EFD_SEMAPHORE);
  if (done < 0) die("eventfd");
  for (uint64_t begun = 0, ended = 0; ended < s.children;) {
    if (begun < s.children && begun - ended < kAtOnce) {
      const pid_t child = ::fork();
      if (child < 0) die("fork");
      if (child == 0) live(s, done);
      ++begun;
      continue;
    }
    eventfd_t one = 0;
    ::eventfd_read(done, &one);
    ended += one;
  }
  JsonLine().add("children", s.children).print();
  for (;;) ::pause();
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("fork_bomb", "starts processes that use the GPU once, and live on.")
