// SPDX-License-Identifier: Apache-2.0
// ProcReader: the one place that reads /proc for tenants. It is a seam, so that tests bring their
// own processes. A process may end between any two calls, and for want of descriptors nothing can
// be read: everything is optional, and nullopt does not prove that a process has ended. Each object
// is used by one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "intercept/event.h"
#include "intercept/lineage.h"
#include "sched/tenants/containers/container_files.h"
#include "shmctl/base/aside.h"
#include "shmctl/base/proc_stat.h"

namespace gpushare {

struct ProcessDetails {
  ProcessId id;
  pid_t parent = 0;
  uid_t uid = 0;  // the real one
  // Who has made the user namespaces that it is in, below the agent's own; root is not named. There
  // a program may be any of the ids that its user may map (subuid(5)).
  std::vector<uid_t> owners;
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
  // Of the process that has this pid now; nullopt: none has it, or it cannot be read now.
  virtual std::optional<ProcessDetails> details(pid_t pid) const = 0;
  // The same, but cheaper: only its identity and its parent.
  virtual std::optional<Link> link(pid_t pid) const = 0;
  // Whether any process has this pid, also where it cannot be read (no descriptor is left, say).
  virtual bool is_taken(pid_t pid) const { return link(pid).has_value(); }
  // Empty: there is no such user; nullopt: the name service has not said yet, and is asked again by
  // a later call.
  virtual std::optional<std::string> user_name(uid_t uid) const = 0;

  // The container of a process, by the path of the process's cgroup. nullptr: it is in none, or in
  // one of which no file of root's tells; nullopt: the disk has not said yet, and is asked again by
  // a later call.
  virtual std::optional<ContainerPtr> container(const std::string&) const { return ContainerPtr(); }

  // Whether a process is in this cgroup of version 2 or below it, by its path below the root; true
  // where that cannot be told.
  virtual bool has_processes(const std::string& cgroup) const = 0;

  // True where /proc shows users their own processes only (its option hidepid): then nobody is to
  // be told the commands of others.
  virtual bool hides_others() const { return false; }

  // Of this process, and not of another one with the same pid.
  virtual Life life(const ProcessId& process) const;
  // Returns true only if that is proven.
  bool has_ended(const ProcessId& process) const { return life(process) == Life::kEnded; }
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

// Blocks for at most kPatience in a call, although whoever reads a process's command line waits for
// the lock of its memory, which large changes of its mappings hold, and the name service may be far
// away: the command line is then unknown, and so is the name until it comes, and what a disk tells
// of a container.
class SystemProcReader final : public ProcReader {
 public:
  static constexpr Nanos kPatience = std::chrono::milliseconds(20);
  static constexpr std::size_t kMostNames = 4096, kMostContainers = 512;  // remembered
  static constexpr std::size_t kMostAsked = 16;                           // of either, at once
  // Empty: there is no such user; nullopt: it cannot say now. Called on any thread.
  using AskName = std::function<std::optional<std::string>(uid_t)>;

  // `root`: the folder to read; `ask`: the name service; `places`: the engines' files. Its own test
  // makes them.
  explicit SystemProcReader(std::string root = "/proc", AskName ask = ask_name_service,
                            ContainerPlaces places = {});
  std::optional<ProcessDetails> details(pid_t pid) const override;
  std::optional<Link> link(pid_t pid) const override;
  bool is_taken(pid_t pid) const override;
  Life life(const ProcessId& process) const override { return life_of(process); }
  std::optional<std::string> user_name(uid_t uid) const override;
  std::optional<ContainerPtr> container(const std::string& cgroup) const override;
  bool hides_others() const override { return hides_others_; }

  // Blocks for as long as the name service does.
  static std::optional<std::string> ask_name_service(uid_t uid);
  bool has_processes(const std::string& cgroup) const override;

 private:
  const std::string root_;
  const bool hides_others_;  // as when the agent started
  const AskName ask_;
  mutable BoundedCalls files_;
  const ContainerPlaces places_;
  mutable Answers<uid_t, std::string> user_names_{kPatience, kMostNames, kMostAsked};
  mutable Answers<std::string, ContainerPtr> containers_{kPatience, kMostContainers, kMostAsked};
};

}  // namespace gpushare
