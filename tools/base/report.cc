// SPDX-License-Identifier: Apache-2.0
#include "tools/base/report.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace gpushare {
namespace {

// What the environment wants, if that is a number of columns.
std::optional<size_t> wanted_columns() {
  const char* const text = std::getenv("COLUMNS");
  if (text == nullptr) return std::nullopt;
  const std::string_view digits(text);
  size_t columns = 0;
  const auto [end, failure] = std::from_chars(digits.begin(), digits.end(), columns);
  const bool is_number = failure == std::errc{} && end == digits.end();
  return is_number && columns > 0 ? std::optional(columns) : std::nullopt;
}

}  // namespace

ExitCode report(const Error& error) {
  fmt::print(stderr, "gpushare: {}\n", error.message());
  return error.code == std::errc::invalid_argument ? kExitUsage : kExitFailure;
}

Screen stdout_screen() {
  Screen screen;
  const std::optional<size_t> columns = wanted_columns();
  screen.width = columns.value_or(screen.width);
  if (::isatty(STDOUT_FILENO) == 0) return screen;
  winsize size{};
  if (!columns && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    screen.width = size.ws_col;
  const char* terminal = std::getenv("TERM");
  const char* no_colour = std::getenv("NO_COLOR");
  screen.has_colours = (no_colour == nullptr || *no_colour == '\0') && terminal != nullptr &&
                       std::strcmp(terminal, "dumb") != 0;
  return screen;
}

Screen stdout_table_screen(bool is_wide) {
  Screen screen = stdout_screen();
  if (is_wide || (::isatty(STDOUT_FILENO) == 0 && !wanted_columns())) screen.width = kUncut;
  return screen;
}

Fd interrupt_fd() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGINT);
  ::sigaddset(&signals, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  return Fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

std::string in_tone(std::string_view text, Tone tone, const Screen& screen) {
  if (!screen.has_colours) return std::string(text);
  const auto coloured = [text](int code) { return fmt::format("\033[{}m{}\033[0m", code, text); };
  switch (tone) {
    case Tone::kGood:
      return coloured(32);
    case Tone::kWarning:
      return coloured(33);
    case Tone::kBad:
      return coloured(31);
    case Tone::kDim:
      return coloured(2);
    case Tone::kPlain:
      break;
  }
  return std::string(text);
}

void add_table(std::vector<std::string>& lines, const Table& table, const Screen& screen) {
  const auto rows = table.lines(screen.width);
  lines.push_back(in_tone(rows.front(), Tone::kDim, screen));
  lines.insert(lines.end(), rows.begin() + 1, rows.end());
}

}  // namespace gpushare
