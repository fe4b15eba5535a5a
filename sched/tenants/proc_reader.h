// SPDX-License-Identifier: Apache-2.0
// ProcReader: the one place that reads /proc. A seam, so that tests bring their own processes. A
// process may end between any two lines of it: everything is optional, nothing is an error. One
// thread.
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
  std::string command;       // comm, at most 15 characters
  std::string command_line;  // arguments joined by blanks; empty for kernel threads
  std::string cgroup;  // path below the cgroup root ("/system.slice/x.service"), empty unknown
};

class ProcReader {
 public:
  struct Link {
    ProcessId id;
    pid_t parent = 0;
  };
  virtual ~ProcReader() = default;
  virtual std::optional<ProcessDetails> details(pid_t pid) const = 0;
  // Who bears this pid now; cheaper than details(). nullopt: nobody.
  virtual std::optional<Link> link(pid_t pid) const = 0;
  // Empty: there is none. Asks the name service the first time only.
  virtual std::string user_name(uid_t uid) const = 0;

  // Is this very process alive?
  bool is_alive(const ProcessId& process) const;
  // Parent first, up to init. A parent that ended is not known any more: the chain then goes on at
  // whoever adopted its children.
  std::vector<ProcessId> ancestors(pid_t pid) const;
};

class SystemProcReader final : public ProcReader {
 public:
  // `root` is /proc but in its own test.
  explicit SystemProcReader(std::string root = "/proc") : root_(std::move(root)) {}
  std::optional<ProcessDetails> details(pid_t pid) const override;
  std::optional<Link> link(pid_t pid) const override;
  std::string user_name(uid_t uid) const override;

 private:
  std::string root_;
  mutable std::map<uid_t, std::string> user_names_;
};

}  // namespace gpushare
