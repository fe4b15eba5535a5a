// SPDX-License-Identifier: Apache-2.0
// The one parser of /proc/PID/stat. A program chooses its own name, which stands in the middle of
// that line; no name can hide the process or give it another start time. Any thread may call.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "shmctl/base/error.h"
#include "shmctl/base/process_id.h"

namespace gpushare {

struct ProcStat {
  std::string command;       // comm as the kernel shows it; may hold blanks and parentheses
  char state = '?';          // 'R', 'S', 'Z' and so on
  pid_t parent = 0;          // the parent's pid; 0 for none in this pid namespace
  bool is_exiting = false;   // it is on its way out, and closes what it has open, for example
  uint64_t start_ticks = 0;  // field 22: clock ticks since boot, 100 a second
};

// Parses the start of such a line, up to field 22 (start_ticks). nullopt for any other text.
std::optional<ProcStat> parse_proc_stat(std::string_view text);

// `root` is /proc except in tests. Any error but no_such_process (too_many_files_open, for example)
// says nothing of the process; life_of() tells more.
Result<ProcStat> read_proc_stat(pid_t pid, const std::string& root = "/proc");

// The start time of `pid` as above; 0 when there is no such process or it cannot be read now, so 0
// does not prove that the process has ended.
uint64_t start_ticks_of(pid_t pid);

// The user who has started the process, which a program cannot make look like another's, unlike the
// owner of its folder in /proc. nullopt: there is no such process, or it cannot be read now.
std::optional<uid_t> real_uid_of(pid_t pid, const std::string& root = "/proc");

// Whether a process lives. That can also be unknown: without a free descriptor, for example,
// nothing can be read of it. What was done to a process is forgotten only when its end is proven.
enum class Life : uint8_t {
  kAlive,
  kEnded,  // proven: no process has the pid, or another one, or all of its threads have ended
  kUnknown,
};

// A `start_ticks` of 0 stands for whichever process has the pid.
Life life_of(const ProcessId& process);

}  // namespace gpushare
