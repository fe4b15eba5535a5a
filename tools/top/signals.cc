// SPDX-License-Identifier: Apache-2.0
#include "tools/top/signals.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shmctl/base/pidfd.h"

namespace gpushare {

Result<> send_signal(const ProcessSignal& signal) {
  constexpr const char* kSend = "send a signal";
  const auto [pid, start_ticks] = signal.process;
  const std::string name = fmt::format("process {}", pid);
  // While this descriptor is open it stands for the process that has the pid now.
  const auto process = open_pidfd(pid, start_ticks, kSend);
  if (!process && process.error().code == std::errc::no_such_process)
    return make_error(std::errc::no_such_process, kSend,
                      name + " has ended, or is not in this pid namespace");
  if (!process) return std::unexpected(process.error());
  if (::syscall(SYS_pidfd_send_signal, process->get(), signal.number, nullptr, 0) != 0)
    return errno_error(kSend, name);
  return {};
}

}  // namespace gpushare
