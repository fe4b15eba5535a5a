// SPDX-License-Identifier: Apache-2.0
#include "shmctl/base/log.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/dup_filter_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <optional>

#include "shmctl/base/log_limit.h"
#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

constexpr uid_t kUserOfTheEnded = static_cast<uid_t>(-1);  // which no process has

// A line that is the same as the last one is counted for so long, instead of written.
constexpr std::chrono::seconds kSameLine(5);

LogLevel from_spdlog(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::trace:
    case spdlog::level::debug:
      return LogLevel::kDebug;
    case spdlog::level::info:
      return LogLevel::kInfo;
    case spdlog::level::warn:
      return LogLevel::kWarning;
    default:
      return LogLevel::kError;
  }
}

// Whether standard error takes a line without a wait. It may be a pipe whose reader stands still,
// or a journal that hangs, and whoever logs may hold programs frozen. Nobody may read it any more.
bool takes_a_line() {
  pollfd out{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  return ::poll(&out, 1, 0) == 1 && out.revents == POLLOUT;
}

// Of the line that this thread writes now: its sinks are called before log_line() returns.
thread_local std::optional<uid_t> user_of_line;

// Writes to standard error what LogLimit admits.
class LimitedSink final : public spdlog::sinks::base_sink<std::mutex> {
 private:
  void sink_it_(const spdlog::details::log_msg& line) override {
    if (!takes_a_line()) return limit_.leave_out();
    const auto left_out =
        limit_.admit(from_spdlog(line.level), MonotonicClock().now(), user_of_line);
    if (!left_out) return;
    if (*left_out > 0) {
      const std::string text =
          fmt::format("{} lines were left out: too many at once, or nobody read them", *left_out);
      out_.log({line.logger_name, spdlog::level::warn, text});
    }
    out_.log(line);
  }
  void flush_() override { out_.flush(); }
  void set_pattern_(const std::string& pattern) override { out_.set_pattern(pattern); }
  void set_formatter_(std::unique_ptr<spdlog::formatter> formatter) override {
    out_.set_formatter(std::move(formatter));
  }

  LogLimit limit_;
  spdlog::sinks::stderr_color_sink_st out_;
};

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto once = std::make_shared<spdlog::sinks::dup_filter_sink_mt>(kSameLine);
    once->add_sink(std::make_shared<LimitedSink>());
    auto made = std::make_shared<spdlog::logger>("gpushare", std::move(once));
    made->set_pattern("%^%l%$: %v");
    made->set_level(spdlog::level::info);
    return made;
  }();
  return *instance;
}

bool is_control(unsigned char c) { return c < 0x20 || c == 0x7f; }

// Programs choose their names and their words: what a terminal would take for a command, or for the
// end of the line, is written as '?'. In UTF-8 0xc2 begins U+0080 to U+009f, which are controls
// too.
std::string without_controls(std::string_view text) {
  std::string out(text);
  for (size_t i = 0; i < out.size(); ++i) {
    const auto next = static_cast<unsigned char>(i + 1 < out.size() ? out[i + 1] : 0);
    const bool is_long = out[i] == '\xc2' && next >= 0x80 && next < 0xa0;
    if (is_long) out.erase(i + 1, 1);
    if (is_long || is_control(static_cast<unsigned char>(out[i]))) out[i] = '?';
  }
  return out;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace

void set_log_level(LogLevel level) { logger().set_level(to_spdlog(level)); }

void log_line(LogLevel level, std::string_view text) {
  if (!logger().should_log(to_spdlog(level))) return;
  logger().log(to_spdlog(level), without_controls(text));
}

void log_line_about(pid_t pid, LogLevel level, std::string_view text) {
  if (!logger().should_log(to_spdlog(level))) return;
  user_of_line = real_uid_of(pid).value_or(kUserOfTheEnded);
  log_line(level, text);
  user_of_line.reset();
}

}  // namespace gpushare
