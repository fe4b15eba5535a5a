// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/proc_reader.h"

#include <fcntl.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "shmctl/base/cgroup.h"
#include "shmctl/base/fd.h"
#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

constexpr std::size_t kMostBytes = 65'536;

std::optional<std::string> read_file(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return std::nullopt;
  std::string text;
  char chunk[4096];
  while (text.size() < kMostBytes) {
    const ssize_t n = ::read(fd.get(), chunk, sizeof chunk);
    if (n < 0) return std::nullopt;
    if (n == 0) break;
    text.append(chunk, static_cast<std::size_t>(n));
  }
  return text;
}

// Returns the first number of the line "Uid:" in /proc/PID/status. The owner of the files there is
// not the process's user: by PR_SET_DUMPABLE a program makes it root.
std::optional<uid_t> real_uid(std::string_view status) {
  constexpr std::string_view kLine = "\nUid:\t";
  const std::size_t at = status.find(kLine);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view number = status.substr(at + kLine.size());
  uid_t uid = 0;
  const auto end = std::from_chars(number.data(), number.data() + number.size(), uid);
  if (end.ec != std::errc()) return std::nullopt;
  return uid;
}

}  // namespace

bool ProcReader::is_alive(const ProcessId& process) const {
  const auto bearer = link(process.pid);
  return bearer && bearer->id == process;
}

std::vector<ProcessId> ProcReader::ancestors(pid_t pid) const {
  constexpr std::size_t kDeepest = 64;
  std::vector<ProcessId> chain;
  if (const auto founder = lineage_ == nullptr ? std::nullopt : lineage_->founder_of(pid))
    chain.push_back(*founder);
  auto at = link(pid);
  while (at && at->parent > 0 && chain.size() < kDeepest) {
    at = link(at->parent);
    if (at) chain.push_back(at->id);
  }
  return chain;
}

std::vector<ProcessId> ProcReader::extinct(std::vector<ProcessId> ended) const {
  if (ended.empty() || lineage_ == nullptr) return ended;
  const std::optional<std::set<ProcessId>> founders = lineage_->founders();
  if (!founders) return {};
  std::erase_if(ended, [&](const ProcessId& process) { return founders->contains(process); });
  return ended;
}

std::optional<ProcReader::Link> SystemProcReader::link(pid_t pid) const {
  const auto stat = read_proc_stat(pid, root_);
  if (!stat) return std::nullopt;
  return Link{{pid, stat->start_ticks}, stat->parent};
}

// What `gpushare run --scope` made where there is no systemd is ours to remove.
bool SystemProcReader::has_processes(const std::string& cgroup) const {
  const std::optional<std::string> root = cgroup2_root();
  if (!root) return false;
  const auto events = read_file(*root + cgroup + "/cgroup.events");
  if (!events) return false;
  if (events->find("populated 0") == std::string::npos) return true;
  if (cgroup.find(kScopePrefix) != std::string::npos) ::rmdir((*root + cgroup).c_str());
  return false;
}

std::string SystemProcReader::user_name(uid_t uid) const {
  const auto [at, is_new] = user_names_.try_emplace(uid);
  if (is_new) {
    char buffer[4096];
    passwd entry{};
    passwd* found = nullptr;
    if (::getpwuid_r(uid, &entry, buffer, sizeof buffer, &found) == 0 && found != nullptr)
      at->second = found->pw_name;
  }
  return at->second;
}

std::optional<ProcessDetails> SystemProcReader::details(pid_t pid) const {
  const std::string folder = root_ + "/" + std::to_string(pid);
  ProcessDetails details;
  const auto text = read_file(folder + "/stat");
  const auto uid = real_uid(read_file(folder + "/status").value_or(""));
  if (!text || !uid) return std::nullopt;
  details.uid = *uid;
  const auto stat = parse_proc_stat(*text);
  if (!stat) return std::nullopt;
  details.id = {pid, stat->start_ticks};
  details.parent = stat->parent;
  details.command = stat->command;

  details.command_line = read_file(folder + "/cmdline").value_or("");
  while (!details.command_line.empty() && details.command_line.back() == '\0')
    details.command_line.pop_back();
  std::replace(details.command_line.begin(), details.command_line.end(), '\0', ' ');
  details.cgroup = cgroup_path(read_file(folder + "/cgroup").value_or(""));
  return details;
}

}  // namespace gpushare
