// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/lock_holders.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

using FileName = std::tuple<uint32_t, uint32_t, uint64_t>;  // device and inode

// Asks no file system, which may be a program's own and never answer.
std::optional<FileName> name_of(int folder, const char* path, int flags) {
  struct statx info{};
  if (::statx(folder, path, flags | AT_STATX_DONT_SYNC, STATX_INO, &info) != 0) return std::nullopt;
  return FileName{info.stx_dev_major, info.stx_dev_minor, info.stx_ino};
}

// Calls `visit(number)` for each entry that is a number, until it returns true. Returns whether it
// has.
bool any_number(const std::string& path, const std::function<bool(int)>& visit) {
  const auto close = [](DIR* dir) { ::closedir(dir); };
  const std::unique_ptr<DIR, decltype(close)> dir(::opendir(path.c_str()), close);
  if (dir == nullptr) return false;
  while (const dirent* const entry = ::readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    int number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc() && end == name.data() + name.size() && visit(number)) return true;
  }
  return false;
}

bool has_open(const std::string& process, const FileName& file) {
  return any_number(process + "/fd", [&](int number) {
    return name_of(AT_FDCWD, (process + "/fd/" + std::to_string(number)).c_str(), 0) == file;
  });
}

// A first thread that has ended shows no files, though the others have them.
bool holds(pid_t pid, const FileName& file) {
  const std::string process = "/proc/" + std::to_string(pid);
  if (has_open(process, file)) return true;
  const auto stat = read_proc_stat(pid);
  if (!stat || stat->state != 'Z') return false;
  return any_number(process + "/task", [&](int thread) {
    return has_open(process + "/task/" + std::to_string(thread), file);
  });
}

}  // namespace

std::vector<ProcessId> others_that_hold(const Fd& file) {
  std::vector<ProcessId> holders;
  const auto name = name_of(file.get(), "", AT_EMPTY_PATH);
  if (!name) return holders;
  any_number("/proc", [&](int pid) {
    if (pid == ::getpid() || !holds(pid, *name)) return false;
    const auto stat = read_proc_stat(pid);
    const bool has_gone = !stat && stat.error().code == std::errc::no_such_process;
    if (!has_gone) holders.push_back({pid, stat ? stat->start_ticks : 0});
    return false;
  });
  return holders;
}

}  // namespace gpushare
