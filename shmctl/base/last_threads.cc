// SPDX-License-Identifier: Apache-2.0
#include "shmctl/base/last_threads.h"

#include <dirent.h>
#include <sys/prctl.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>

#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

constexpr std::string_view kPrefix = "gpushare-gpu";  // with a number at most 15 bytes
constexpr const char* kAll = "gpushare-gpus";

std::string gpu_thread_name(uint32_t gpu) { return std::string(kPrefix) + std::to_string(gpu); }

bool has_ended(char state) { return state == 'Z' || state == 'X'; }

// Of a line of /proc/PID/status that says which signals wait, as a hexadecimal mask.
bool has_kill(std::string_view line) {
  line.remove_prefix(std::min(line.find(':') + 1, line.size()));
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  uint64_t mask = 0;
  std::from_chars(line.data(), line.data() + line.size(), mask, 16);
  return (mask & (uint64_t{1} << (SIGKILL - 1))) != 0;
}

bool is_kill_pending(pid_t pid, const std::string& root) {
  std::ifstream status(root + "/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);)
    if ((line.starts_with("SigPnd:") || line.starts_with("ShdPnd:")) && has_kill(line)) return true;
  return false;
}

// nullopt: no process has the pid, or another one.
Result<std::optional<ProcStat>> look_at(const ProcessId& process, const std::string& root) {
  auto stat = read_proc_stat(process.pid, root);
  const bool is_gone = !stat && stat.error().code == std::errc::no_such_process;
  if (!stat && !is_gone) return std::unexpected(stat.error());
  if (is_gone || (process.start_ticks != 0 && stat->start_ticks != process.start_ticks))
    return std::nullopt;
  return std::move(*stat);
}

}  // namespace

void name_gpu_thread(uint32_t gpu) { ::prctl(PR_SET_NAME, gpu_thread_name(gpu).c_str()); }
void name_all_gpus_thread() { ::prctl(PR_SET_NAME, kAll); }

Result<std::vector<LastThread>> threads_of(pid_t pid, const std::string& root) {
  const std::string path = root + "/" + std::to_string(pid) + "/task";
  const auto close = [](DIR* dir) { ::closedir(dir); };
  const std::unique_ptr<DIR, decltype(close)> dir(::opendir(path.c_str()), close);
  std::vector<LastThread> threads;
  if (dir == nullptr && errno == ENOENT) return threads;
  if (dir == nullptr) return errno_error("list the threads of a process", path);
  while (const dirent* const entry = ::readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    LastThread thread;
    if (std::from_chars(name.data(), name.data() + name.size(), thread.tid).ec != std::errc())
      continue;
    const auto stat = read_proc_stat(thread.tid, path);
    if (!stat && stat.error().code == std::errc::no_such_process) continue;
    if (!stat) return std::unexpected(stat.error());
    if (has_ended(stat->state)) continue;
    thread.name = stat->command;
    thread.state = stat->state;
    threads.push_back(std::move(thread));
  }
  return threads;
}

bool has_died(const ProcessId& process, const std::string& root) {
  const auto stat = look_at(process, root);
  if (!stat) return false;
  return !*stat || has_ended((*stat)->state) || (*stat)->is_exiting ||
         is_kill_pending(process.pid, root);
}

bool may_ask_gpu(const ProcessId& process, uint32_t gpu, const std::string& root) {
  const auto stat = look_at(process, root);
  if (!stat) return true;
  if (!*stat) return false;
  const auto threads = threads_of(process.pid, root);
  if (!threads) return true;
  const std::string name = gpu_thread_name(gpu);
  const bool has_first = !has_ended((*stat)->state) && is_kill_pending(process.pid, root);
  return std::ranges::any_of(*threads, [&](const LastThread& thread) {
    return thread.name == name || thread.name == kAll || (has_first && thread.tid == process.pid);
  });
}

}  // namespace gpushare
