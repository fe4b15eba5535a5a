// SPDX-License-Identifier: Apache-2.0
// Which of the configuration's rules the kernel module can apply, so that a program is in its
// tenant from its first call on; the agent applies the others when it sees the program. Pure.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sched/tenants/rules.h"

namespace gpushare {

// A tenant has at most one rule of each kind in the kernel. There all cgroup rules come before all
// uid rules, and both before the agent's.
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

// The first of several rules decides, wherever it is applied: the kernel gets as many from the
// front as keep that order. Of [cgroup A, user B, command C, cgroup D] it gets [cgroup A, uid B],
// the agent [command C, cgroup D].
// `uid_of`: of a user's name; nullopt when there is no such user.
SplitRules split_rules(std::span<const Rule> rules,
                       const std::function<std::optional<uid_t>(const std::string&)>& uid_of);

// What the agent applies to those whom the kernel left in `default`: all rules in the kernel's
// order, first those that its sysfs shows, then the agent's own. A rule of the file that the kernel
// was given and that sysfs shows no longer was taken away there.
// `of_kernel`: of the file, as split. `shown`: in sysfs now.
std::vector<Rule> rules_in_force(std::span<const Rule> file, std::span<const KernelRule> of_kernel,
                                 std::span<const KernelRule> shown);

// Of a name, or of a number; asks the name service.
std::optional<uid_t> system_uid_of(const std::string& user);

}  // namespace gpushare
