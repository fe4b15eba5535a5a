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

namespace gpushare {

struct ProcessDetails {
  ProcessId id;
  pid_t parent = 0;
  uid_t uid = 0;
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
  // Whether any process has this pid, also where it cannot be read (no descriptor is left, say).
  virtual bool is_taken(pid_t pid) const { return link(pid).has_value(); }
  // Empty: there is no such user. Asks the name service once for each uid.
  virtual std::string user_name(uid_t uid) const = 0;

  // Returns true if this process lives, and not another one with the same pid.
  bool is_alive(const ProcessId& process) const;
  // Returns true only if that is sure: no process has its pid, or another one.
  bool has_ended(const ProcessId& process) const;
  // The parent first, up to init, at most 64 of them. A parent that ended is not known any more:
  // the chain then goes on at the process that adopted its children.
  std::vector<ProcessId> ancestors(pid_t pid) const;
};

class SystemProcReader final : public ProcReader {
 public:
  // `root`: the folder to read; its own test makes one.
  explicit SystemProcReader(std::string root = "/proc") : root_(std::move(root)) {}
  std::optional<ProcessDetails> details(pid_t pid) const override;
  std::optional<Link> link(pid_t pid) const override;
  bool is_taken(pid_t pid) const override;
  std::string user_name(uid_t uid) const override;

 private:
  std::string root_;
  mutable std::map<uid_t, std::string> user_names_;
};

}  // namespace gpushare
