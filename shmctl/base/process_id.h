// SPDX-License-Identifier: Apache-2.0
// ProcessId: names a process for as long as it lives. Pids are reused; the pair of a pid and a
// start time is not.
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
