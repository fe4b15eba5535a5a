// SPDX-License-Identifier: Apache-2.0
// Writes log lines to standard error; systemd's journal adds the time and the unit. Any thread may
// call. A line is written once, where the decision is made; code below returns an Error instead.
// A line that repeats the last one is counted and not written, and so are lines of a level that
// come too often (log_limit.h): other processes can cause some of them, and those that name one go
// by log_about(), so that no user's flood hides what is said of others. A line that standard error
// does not take at once is left out, because no reader of the log may hold up the agent.
#pragma once

#include <fmt/core.h>
#include <sys/types.h>

#include <string_view>
#include <utility>

namespace gpushare {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Lines below `level` are dropped from now on; the level is kInfo at first.
void set_log_level(LogLevel level);
// Writes one line; `text` has no newline at its end. Control characters in it become '?'.
void log_line(LogLevel level, std::string_view text);

// The same for a line about a process, by its pid: it also counts among those about the processes
// of its user. Processes that have ended count as one more user's. Reads a file in /proc.
void log_line_about(pid_t pid, LogLevel level, std::string_view text);

// The same for each level, with fmt's format strings.
template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_about(pid_t pid, LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  log_line_about(pid, level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace gpushare
