// SPDX-License-Identifier: Apache-2.0
#include "shmctl/base/proc_stat.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>

#include "shmctl/base/fd.h"

namespace gpushare {
namespace {

template <class Number>
bool read_number(std::string_view word, Number& number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size();
}

// A process whose first thread has ended is a zombie, too, while its other threads run; a pidfd
// becomes readable when the last one has ended.
bool has_no_thread_left(pid_t pid) {
  const Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  pollfd end{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  return pidfd.is_open() && ::poll(&end, 1, 0) > 0;
}

}  // namespace

// The text is "PID (COMM) STATE PPID ...". No field after the command has a parenthesis, so the
// last one ends the command.
std::optional<ProcStat> parse_proc_stat(std::string_view text) {
  // Counted from 1, as proc(5) does.
  constexpr int kState = 3, kParent = 4, kFlags = 9, kStartTicks = 22;
  constexpr uint64_t kExiting = 4;  // the kernel's PF_EXITING
  uint64_t flags = 0;
  const std::size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open)
    return std::nullopt;
  ProcStat stat;
  stat.command = text.substr(open + 1, close - open - 1);
  text.remove_prefix(close + 1);
  for (int field = kState; field <= kStartTicks; ++field) {
    if (!text.starts_with(' ')) return std::nullopt;
    text.remove_prefix(1);
    const std::string_view word = text.substr(0, text.find_first_of(" \n"));
    if (word.empty()) return std::nullopt;
    if (field == kState) stat.state = word.front();
    if (field == kParent && !read_number(word, stat.parent)) return std::nullopt;
    if (field == kFlags && !read_number(word, flags)) return std::nullopt;
    if (field == kStartTicks && !read_number(word, stat.start_ticks)) return std::nullopt;
    text.remove_prefix(word.size());
  }
  stat.is_exiting = (flags & kExiting) != 0;
  return stat;
}

Result<ProcStat> read_proc_stat(pid_t pid, const std::string& root) {
  constexpr const char* kStep = "look at a process";
  const std::string path = root + "/" + std::to_string(pid) + "/stat";
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open() && errno == ENOENT)
    return make_error(std::errc::no_such_process, kStep, std::to_string(pid));
  if (!fd.is_open()) return errno_error(kStep, path);
  char text[2048];  // the first 22 fields are under 600 bytes; the kernel gives them in one read
  const ssize_t size = ::read(fd.get(), text, sizeof text);
  if (size < 0) return errno_error(kStep, path);
  auto stat = parse_proc_stat({text, static_cast<std::size_t>(size)});
  if (!stat) return make_error(std::errc::bad_message, kStep, path);
  return *std::move(stat);
}

uint64_t start_ticks_of(pid_t pid) {
  const auto stat = read_proc_stat(pid);
  return stat ? stat->start_ticks : 0;
}

std::optional<uid_t> real_uid_of(pid_t pid, const std::string& root) {
  constexpr std::string_view kLine = "\nUid:\t";
  const Fd fd(::open((root + "/" + std::to_string(pid) + "/status").c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return std::nullopt;
  char bytes[4096];  // the line is among the first ones
  const ssize_t size = ::read(fd.get(), bytes, sizeof bytes);
  if (size < 0) return std::nullopt;
  const std::string_view text(bytes, static_cast<std::size_t>(size));
  const std::size_t at = text.find(kLine);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view number = text.substr(at + kLine.size());
  uid_t uid = 0;
  if (!read_number(number.substr(0, number.find_first_not_of("0123456789")), uid))
    return std::nullopt;
  return uid;
}

Life life_of(const ProcessId& process) {
  // The signal 0 needs no descriptor, and /proc may hide processes.
  if (process.pid <= 0 || (::kill(process.pid, 0) != 0 && errno == ESRCH)) return Life::kEnded;
  const auto stat = read_proc_stat(process.pid);
  if (!stat) return Life::kUnknown;
  if (process.start_ticks != 0 && stat->start_ticks != process.start_ticks) return Life::kEnded;
  return stat->state == 'Z' && has_no_thread_left(process.pid) ? Life::kEnded : Life::kAlive;
}

}  // namespace gpushare
