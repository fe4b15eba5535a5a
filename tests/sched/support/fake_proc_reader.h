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
  bool everyone_lives = true;
  std::map<pid_t, ProcessDetails> known;
  std::map<pid_t, bool> dead;

  ProcessDetails& add(const ProcessId& process, const std::string& command, uid_t uid = 0) {
    ProcessDetails& details = known[process.pid];
    details.id = process;
    details.command = details.command_line = command;
    details.uid = uid;
    return details;
  }

  std::optional<ProcessDetails> details(pid_t pid) const override {
    const auto at = known.find(pid);
    if (dead.contains(pid) || at == known.end()) return std::nullopt;
    return at->second;
  }
  std::optional<Link> link(pid_t pid) const override {
    if (dead.contains(pid)) return std::nullopt;
    const auto at = known.find(pid);
    if (at != known.end()) return Link{at->second.id, at->second.parent};
    if (!everyone_lives) return std::nullopt;
    return Link{{pid, static_cast<uint64_t>(1000 + pid)}, 0};
  }
  std::set<std::string> cgroups;  // in which a process is
  bool has_processes(const std::string& cgroup) const override { return cgroups.contains(cgroup); }
  std::string user_name(uid_t uid) const override { return uid == 1000 ? "alice" : ""; }
};

}  // namespace gpushare::test
