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
  if (start_ticks == 0) return pidfd;
  // The process is pinned now, so a start time that matches stays right.
  switch (life_of({pid, start_ticks})) {
    case Life::kAlive:
      return pidfd;
    case Life::kEnded:
      return make_error(std::errc::no_such_process, step, std::to_string(pid));
    case Life::kUnknown:
      break;
  }
  return make_error(std::errc::resource_unavailable_try_again, step,
                    std::to_string(pid) + ": /proc does not tell whether it is the same process");
}

}  // namespace gpushare
