// SPDX-License-Identifier: Apache-2.0
#include "shmctl/base/life.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "shmctl/base/fd.h"
#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

// A process whose first thread has ended is a zombie, too, while its other threads run; a pidfd
// becomes readable when the last one has ended.
bool has_no_thread_left(pid_t pid) {
  const Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  pollfd end{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  return pidfd.is_open() && ::poll(&end, 1, 0) > 0;
}

}  // namespace

Life life_of(const ProcessId& process) {
  // The signal 0 needs no descriptor, and /proc may hide processes.
  if (process.pid <= 0 || (::kill(process.pid, 0) != 0 && errno == ESRCH)) return Life::kEnded;
  const auto stat = read_proc_stat(process.pid);
  if (!stat) return Life::kUnknown;
  if (process.start_ticks != 0 && stat->start_ticks != process.start_ticks) return Life::kEnded;
  return stat->state == 'Z' && has_no_thread_left(process.pid) ? Life::kEnded : Life::kAlive;
}

}  // namespace gpushare
