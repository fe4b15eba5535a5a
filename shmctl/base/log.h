// SPDX-License-Identifier: Apache-2.0
// Log lines to standard error (systemd's journal adds time and unit). Safe from any thread. A line
// is written once, where the decision is made; libraries below return Error instead of logging.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace gpushare {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Lines below `level` are dropped. Default: kInfo.
void set_log_level(LogLevel level);
void log_line(LogLevel level, std::string_view text);

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

}  // namespace gpushare
