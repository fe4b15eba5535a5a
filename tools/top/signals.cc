// SPDX-License-Identifier: Apache-2.0
#include "tools/top/signals.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shmctl/base/fd.h"
#include "shmctl/base/proc_stat.h"

namespace gpushare {

Result<> send_signal(const ProcessSignal& signal) {
  constexpr const char* kStep = "send a signal";
  const auto [pid, start_ticks] = signal.process;
  const std::string name = fmt::format("process {}", pid);
  // While this descriptor is open it stands for the process that has the pid now.
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process.is_open()) return errno_error(kStep, name);
  if (start_ticks != 0 && start_ticks_of(pid) != start_ticks)
    return make_error(std::errc::no_such_process, kStep,
                      name + " has ended, or is not in this pid namespace");
  if (::syscall(SYS_pidfd_send_signal, process.get(), signal.number, nullptr, 0) != 0)
    return errno_error(kStep, name);
  return {};
}

}  // namespace gpushare
