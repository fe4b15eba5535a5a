// SPDX-License-Identifier: Apache-2.0
#include "intercept/process_stop.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "shmctl/base/fd.h"
#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

Result<> signal(const ProcessId& process, int number, const char* step) {
  const Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  if (!pidfd.is_open()) return errno_error(step, std::to_string(process.pid));
  // The pidfd pins the process: when the start time matches now, it is the one that was meant.
  if (start_ticks_of(process.pid) != process.start_ticks)
    return make_error(std::errc::no_such_process, step, std::to_string(process.pid));
  if (::syscall(SYS_pidfd_send_signal, pidfd.get(), number, nullptr, 0) != 0)
    return errno_error(step, std::to_string(process.pid));
  return {};
}

}  // namespace

Result<> stop_process(const ProcessId& process) { return signal(process, SIGSTOP, "stop process"); }

Result<> resume_process(const ProcessId& process) {
  return signal(process, SIGCONT, "resume process");
}

}  // namespace gpushare
