// SPDX-License-Identifier: Apache-2.0
// Rules that say which tenant a process belongs to when it was not attached to one. These are pure
// functions of what is known of a process, which sched/tenants/identity.h reads.
// Attachments, and how they go before rules, are in sched/tenants/tenants.h.
#pragma once

#include <sys/types.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "intercept/event.h"
#include "sched/tenants/containers/container.h"

namespace gpushare {

struct UserIdentity {
  uid_t uid = 0;
  std::string name;  // empty: not known
};

struct ProcessIdentity {
  ProcessId id;
  std::vector<ProcessId> ancestors;  // parent first; with start times, because pids are reused
  std::string cgroup_path;           // in the v2 hierarchy, "/user.slice/..."; empty: not known
  uid_t uid = 0;
  std::string user;  // name of uid; empty: not known
  // Who has made the user namespaces that it is in. It runs for them as well.
  std::vector<UserIdentity> owners{};
  std::string command;       // comm: at most 15 characters
  std::string command_line;  // arguments joined by blanks; empty: not known
  ContainerPtr container{};  // nullptr: it is in none that is known
  bool is_whole = true;      // false: who tells of names or containers has not answered yet
};

// A rule holds for a process when all its conditions hold; a rule without conditions holds for
// none.
struct Rule {
  std::string tenant;
  std::optional<std::string> cgroup;       // glob on the whole cgroup path
  std::optional<std::string> user;         // of whom it runs for: a name, or a uid in decimal
  std::optional<std::string> command;      // glob on the whole of comm, or of the command line
  std::optional<std::string> container{};  // glob on a whole name of its container
  std::optional<std::string> label{};      // "KEY=GLOB" on the whole value of a label of that

  // Those that the kernel module can apply.
  bool is_by_cgroup_alone() const { return cgroup && !user && is_of_no_program(); }
  bool is_by_user_alone() const { return user && !cgroup && is_of_no_program(); }
  // Whether a container's engine is to say whether it holds.
  bool is_by_container() const { return container || label; }

  bool operator==(const Rule&) const = default;

 private:
  bool is_of_no_program() const { return !command && !is_by_container(); }
};

// Returns true if the whole text matches: `*` stands for any characters, '/' among them, `?` for
// any one byte, and every other character for itself. Takes O(pattern * text) time at worst and
// does not recurse, because command lines are hostile input.
bool glob_matches(std::string_view pattern, std::string_view text);

bool rule_matches(const Rule& rule, const ProcessIdentity& process);

}  // namespace gpushare
