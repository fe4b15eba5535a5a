// SPDX-License-Identifier: Apache-2.0
// /proc/PID/stat: the one parser of it. A program chooses its own name, which stands in the middle
// of that line, so whatever it calls itself must not hide the process or lend it another start
// time. Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gpushare {

struct ProcStat {
  std::string command;  // comm, as the kernel shows it; may hold blanks and parentheses
  pid_t parent = 0;
  uint64_t start_ticks = 0;  // clock ticks since boot
};

// nullopt for anything but the start of such a line up to field 22, start_ticks.
std::optional<ProcStat> parse_proc_stat(std::string_view text);

// nullopt: there is no such process (any more). `root` is /proc but in tests.
std::optional<ProcStat> read_proc_stat(pid_t pid, const std::string& root = "/proc");

// 0: there is no such process.
uint64_t start_ticks_of(pid_t pid);

}  // namespace gpushare
