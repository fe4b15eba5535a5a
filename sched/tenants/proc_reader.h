// SPDX-License-Identifier: Apache-2.0
// ProcReader: the one place that reads /proc for tenants. It is a seam, so that tests bring their
// own processes. A process may end between any two calls: everything is optional, nothing is an
// error. Each object is used by one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "intercept/event.h"
#include "intercept/lineage.h"

namespace gpushare {

struct ProcessDetails {
  ProcessId id;
  pid_t parent = 0;
  uid_t uid = 0;             // the real one
  std::string command;       // comm: at most 15 characters
  std::string command_line;  // arguments joined by blanks; empty for kernel threads
  std::string cgroup;  // path below the cgroup root, "/system.slice/x.service"; empty: not known
};

class ProcReader {
 public:
  struct Link {
    ProcessId id;
    pid_t parent = 0;
  };
  virtual ~ProcReader() = default;
  // Of the process that has this pid now; nullopt: none has it.
  virtual std::optional<ProcessDetails> details(pid_t pid) const = 0;
  // The same, but cheaper: only its identity and its parent.
  virtual std::optional<Link> link(pid_t pid) const = 0;
  // Empty: there is no such user. Asks the name service once for each uid.
  virtual std::string user_name(uid_t uid) const = 0;
  // Whether a process is in this cgroup of version 2 or below it, by its path below the root.
  virtual bool has_processes(const std::string& cgroup) const = 0;

  // Returns true if this process lives, and not another one with the same pid.
  bool is_alive(const ProcessId& process) const;
  // First the founder of its line, where lines are followed: the chain of parents may have been
  // broken since. Then the parent, up to init, at most 64 of them. A parent that ended is not known
  // any more: the chain then goes on at the process that adopted its children.
  std::vector<ProcessId> ancestors(pid_t pid) const;

  // What follows the lines of processes; outlives it, or the next call. nullptr: nothing does.
  void set_lineage(const Lineage* lineage) { lineage_ = lineage; }
  // Of these processes, which have ended, those of whose line nobody lives either.
  std::vector<ProcessId> extinct(std::vector<ProcessId> ended) const;

 private:
  const Lineage* lineage_ = nullptr;
};

class SystemProcReader final : public ProcReader {
 public:
  // `root`: the folder to read; its own test makes one.
  explicit SystemProcReader(std::string root = "/proc") : root_(std::move(root)) {}
  std::optional<ProcessDetails> details(pid_t pid) const override;
  std::optional<Link> link(pid_t pid) const override;
  std::string user_name(uid_t uid) const override;
  bool has_processes(const std::string& cgroup) const override;

 private:
  std::string root_;
  mutable std::map<uid_t, std::string> user_names_;
};

}  // namespace gpushare
