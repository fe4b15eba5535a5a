// SPDX-License-Identifier: Apache-2.0
// Rules that say which tenant a process belongs to when nobody attached it explicitly. Pure
// functions over what is known of a process; the agent gathers that from /proc. (Attachments, and
// the order attach > rules > default, are in tenants.h.)
#pragma once

#include <sys/types.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "intercept/event.h"

namespace gpushare {

struct ProcessFacts {
  ProcessId id;
  std::vector<ProcessId> ancestors;  // parent first; with start times, because pids are reused
  std::string cgroup_path;           // in the v2 hierarchy, "/user.slice/..."; empty unknown
  uid_t uid = 0;
  std::string user;          // name of uid; empty unknown
  std::string command;       // comm, at most 15 characters
  std::string command_line;  // arguments joined by blanks; empty unknown
};

// All conditions that are given must hold; a rule has at least one.
struct Rule {
  std::string tenant;
  std::optional<std::string> cgroup;   // glob on the whole cgroup path
  std::optional<std::string> user;     // user name, or uid in decimal
  std::optional<std::string> command;  // glob on the whole of comm, or of the command line

  bool operator==(const Rule&) const = default;
};

// `*` stands for any characters, '/' too, `?` for any one byte; all else for itself. The whole text
// must match. Time O(pattern * text) at worst, no recursion: command lines are hostile input.
bool glob_matches(std::string_view pattern, std::string_view text);

bool rule_matches(const Rule& rule, const ProcessFacts& process);

}  // namespace gpushare
