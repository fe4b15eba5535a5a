// SPDX-License-Identifier: Apache-2.0
// ProcessId: the name of a process that no later process can have. The kernel uses pids again, but
// never the same pair of a pid and a start time.
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>

namespace gpushare {

struct ProcessId {
  pid_t pid = 0;             // in the agent's pid namespace
  uint64_t start_ticks = 0;  // field 22 of /proc/PID/stat: clock ticks since boot, 100 a second

  auto operator<=>(const ProcessId&) const = default;
};

}  // namespace gpushare
