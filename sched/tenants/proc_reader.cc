// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/proc_reader.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <pwd.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <vector>

#include "shmctl/base/cgroup.h"
#include "shmctl/base/fd.h"
#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

constexpr std::size_t kMostBytes = 65'536;
constexpr std::size_t kLargestEntry = 1 << 20;  // bytes, of a user in the name service

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

// The innermost first. `process` and `own` are folders of /proc.
std::vector<uid_t> namespace_owners(const std::string& process, const std::string& own) {
  constexpr int kDeepest = 32;  // user_namespaces(7)
  std::vector<uid_t> owners;
  struct stat our{}, their{};
  if (::stat((own + "/ns/user").c_str(), &our) != 0) return owners;
  Fd at(::open((process + "/ns/user").c_str(), O_RDONLY | O_CLOEXEC));
  for (int depth = 0; depth < kDeepest && at.is_open(); ++depth) {
    if (::fstat(at.get(), &their) != 0) break;
    if (their.st_dev == our.st_dev && their.st_ino == our.st_ino) break;
    uid_t owner = 0;
    if (::ioctl(at.get(), NS_GET_OWNER_UID, &owner) == 0 && owner != 0) owners.push_back(owner);
    at = Fd(::ioctl(at.get(), NS_GET_PARENT));
  }
  return owners;
}

// Whether a line of /proc/self/mounts, "proc /proc proc rw,hidepid=invisible 0 0", says that users
// see their own processes only.
bool has_hidepid(std::string_view mounts) {
  while (!mounts.empty()) {
    const std::string_view line = mounts.substr(0, mounts.find('\n'));
    mounts.remove_prefix(std::min(mounts.size(), line.size() + 1));
    constexpr std::string_view kOption = "hidepid=";
    const std::size_t at = line.find(kOption);
    if (line.find(" /proc proc ") == std::string_view::npos || at == std::string_view::npos)
      continue;
    const std::string_view value = line.substr(at + kOption.size());
    return !value.starts_with("0") && !value.starts_with("off");
  }
  return false;
}

}  // namespace

Life ProcReader::life(const ProcessId& process) const {
  const auto bearer = link(process.pid);
  if (bearer) return bearer->id == process ? Life::kAlive : Life::kEnded;
  return is_taken(process.pid) ? Life::kUnknown : Life::kEnded;
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
  if (!root) return false;  // there are none
  const auto events = read_file(*root + cgroup + "/cgroup.events");
  if (!events)  // it is gone, or cannot be read now
    return ::access((*root + cgroup).c_str(), F_OK) == 0 || errno != ENOENT;
  if (events->find("populated 0") == std::string::npos) return true;
  if (cgroup.find(kScopePrefix) != std::string::npos) ::rmdir((*root + cgroup).c_str());
  return false;
}

// Takes no descriptor.
bool SystemProcReader::is_taken(pid_t pid) const { return ::kill(pid, 0) == 0 || errno != ESRCH; }

SystemProcReader::SystemProcReader(std::string root, AskName ask, ContainerPlaces places)
    : root_(std::move(root)),
      hides_others_(has_hidepid(read_file(root_ + "/self/mounts").value_or(""))),
      ask_(std::move(ask)),
      places_(std::move(places)) {}

std::optional<std::string> SystemProcReader::ask_name_service(uid_t uid) {
  std::vector<char> buffer(1024);
  passwd entry{};
  passwd* found = nullptr;
  int error = 0;
  while ((error = ::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found)) == ERANGE &&
         buffer.size() < kLargestEntry)
    buffer.resize(2 * buffer.size());
  if (found != nullptr) return found->pw_name;
  // These stand for "no such user", by the manual of getpwuid_r().
  const bool is_nobody =
      error == 0 || error == ENOENT || error == ESRCH || error == EBADF || error == EPERM;
  return is_nobody ? std::optional<std::string>("") : std::nullopt;
}

std::optional<std::string> SystemProcReader::user_name(uid_t uid) const {
  return user_names_.of(uid, [ask = ask_, uid] { return ask(uid); });
}

std::optional<ContainerPtr> SystemProcReader::container(const std::string& cgroup) const {
  const auto group = container_group(cgroup);
  if (!group) return ContainerPtr();
  return containers_.of(group->above + "/" + group->name, [places = places_, group = *group] {
    return read_container(places, group);
  });
}

std::optional<ProcessDetails> SystemProcReader::details(pid_t pid) const {
  const std::string folder = root_ + "/" + std::to_string(pid);
  ProcessDetails details;
  const auto text = read_file(folder + "/stat");
  const auto uid = real_uid_of(pid, root_);
  if (!text || !uid) return std::nullopt;
  details.uid = *uid;
  details.owners = namespace_owners(folder, root_ + "/self");
  const auto stat = parse_proc_stat(*text);
  if (!stat) return std::nullopt;
  details.id = {pid, stat->start_ticks};
  details.parent = stat->parent;
  details.command = stat->command;

  using Text = std::optional<std::string>;
  details.command_line = files_
                             .call<Text>(details.uid, kPatience,
                                         [path = folder + "/cmdline"] { return read_file(path); })
                             .value_or(Text())
                             .value_or("");
  while (!details.command_line.empty() && details.command_line.back() == '\0')
    details.command_line.pop_back();
  std::replace(details.command_line.begin(), details.command_line.end(), '\0', ' ');
  details.cgroup = cgroup_path(read_file(folder + "/cgroup").value_or(""));
  return details;
}

}  // namespace gpushare
