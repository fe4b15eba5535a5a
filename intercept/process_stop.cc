// SPDX-License-Identifier: Apache-2.0
#include "intercept/process_stop.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "shmctl/base/pidfd.h"

namespace gpushare {
namespace {

Result<> signal(const ProcessId& process, int number, const char* step) {
  const auto pidfd = open_pidfd(process.pid, process.start_ticks, step);
  if (!pidfd) return std::unexpected(pidfd.error());
  if (::syscall(SYS_pidfd_send_signal, pidfd->get(), number, nullptr, 0) != 0)
    return errno_error(step, std::to_string(process.pid));
  return {};
}

}  // namespace

Result<> stop_process(const ProcessId& process) { return signal(process, SIGSTOP, "stop process"); }

Result<> resume_process(const ProcessId& process) {
  return signal(process, SIGCONT, "resume process");
}

}  // namespace gpushare
