// SPDX-License-Identifier: Apache-2.0
// Which of the configuration's rules the kernel module can apply, so that a process is in its
// tenant from its first call on; the agent applies the others when it sees the process. Pure, but
// for system_uid_of().
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sched/tenants/rules.h"

namespace gpushare {

// A rule as the kernel has it. A tenant has at most one of each kind there. The kernel tries all
// cgroup rules before all uid rules; the agent's rules come last.
struct KernelRule {
  std::string tenant;
  std::string cgroup;        // empty: it is by uid
  std::optional<uid_t> uid;  // nullopt: it is by cgroup

  bool operator==(const KernelRule&) const = default;
};
struct SplitRules {
  std::vector<KernelRule> of_kernel;
  std::vector<Rule> of_agent;
};

// The first rule that matches decides, wherever it is applied. So the kernel gets as many rules
// from the front as keep that order. Of [cgroup A, user B, command C, cgroup D] the kernel gets
// [cgroup A, uid B], and the agent [command C, cgroup D].
// `uid_of` returns the uid of a user's name; nullopt when there is no such user.
SplitRules split_rules(std::span<const Rule> rules,
                       const std::function<std::optional<uid_t>(const std::string&)>& uid_of);

// The rules that the agent applies to processes that the kernel left in `default`: those that sysfs
// shows, in the kernel's order, then those that only the agent has. A rule of the file that the
// kernel was given but sysfs no longer shows was taken away by an operator, and does not hold.
// `of_kernel`: the rules of the file that the kernel was given. `shown`: what sysfs shows now.
std::vector<Rule> rules_in_force(std::span<const Rule> file, std::span<const KernelRule> of_kernel,
                                 std::span<const KernelRule> shown);

// The uid that a rule names by its number.
std::optional<uid_t> uid_in(const std::string& user);
// The uid of a user's name, for which the name service is asked, or of a decimal number. nullopt:
// it is neither. Blocks for as long as the name service does; any thread may call.
std::optional<uid_t> system_uid_of(const std::string& user);

}  // namespace gpushare
