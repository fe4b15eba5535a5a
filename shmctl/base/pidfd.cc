// SPDX-License-Identifier: Apache-2.0
#include "shmctl/base/pidfd.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <string>

#include "shmctl/base/proc_stat.h"

namespace gpushare {

Result<Fd> open_pidfd(pid_t pid, uint64_t start_ticks, const char* step) {
  Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.is_open()) return errno_error(step, std::to_string(pid));
  // The process is pinned now, so a start time that matches stays right.
  if (start_ticks != 0 && start_ticks_of(pid) != start_ticks)
    return make_error(std::errc::no_such_process, step, std::to_string(pid));
  return pidfd;
}

}  // namespace gpushare
