// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>

#include "sched/tenants/proc_reader.h"

namespace gpushare::test {

// Processes as the test says. A pid that nobody mentioned is alive, of start time 1000 + pid (as
// the scripted programs' are), when `everyone_lives`.
class FakeProcReader final : public ProcReader {
 public:
  bool everyone_lives = true, hides = false;
  std::map<pid_t, ProcessDetails> known;
  std::map<pid_t, bool> dead;
  bool is_readable = true;     // otherwise nothing can be read, of nobody
  std::set<pid_t> unreadable;  // nothing can be read of them, as when no descriptor is free

  ProcessDetails& add(const ProcessId& process, const std::string& command, uid_t uid = 0) {
    ProcessDetails& details = known[process.pid];
    details.id = process;
    details.command = details.command_line = command;
    details.uid = uid;
    return details;
  }

  std::optional<ProcessDetails> details(pid_t pid) const override {
    const auto at = known.find(pid);
    if (!is_readable || unreadable.contains(pid) || dead.contains(pid) || at == known.end())
      return std::nullopt;
    return at->second;
  }
  std::optional<Link> link(pid_t pid) const override {
    if (!is_readable || unreadable.contains(pid) || dead.contains(pid)) return std::nullopt;
    const auto at = known.find(pid);
    if (at != known.end()) return Link{at->second.id, at->second.parent};
    if (!everyone_lives) return std::nullopt;
    return Link{{pid, static_cast<uint64_t>(1000 + pid)}, 0};
  }
  bool is_taken(pid_t pid) const override {
    return !dead.contains(pid) && (everyone_lives || known.contains(pid));
  }
  bool hides_others() const override { return hides; }
  std::optional<std::string> user_name(uid_t uid) const override {
    if (is_name_service_late) return std::nullopt;
    const auto at = user_names.find(uid);
    return at == user_names.end() ? "" : at->second;
  }
  std::map<uid_t, std::string> user_names{{1000, "alice"}};
  bool is_name_service_late = false;
  std::optional<ContainerPtr> container(const std::string& cgroup) const override {
    if (is_disk_late) return std::nullopt;
    const auto at = containers.find(cgroup);
    return at == containers.end() ? ContainerPtr() : at->second;
  }
  std::map<std::string, ContainerPtr> containers;  // by the path of the cgroup
  bool is_disk_late = false;
  std::set<std::string> cgroups;  // in which a process is
  bool has_processes(const std::string& cgroup) const override { return cgroups.contains(cgroup); }
};

}  // namespace gpushare::test
