// SPDX-License-Identifier: Apache-2.0
// What the configuration file puts into the kernel module's sysfs, and when.
//
// At the agent's start only what sysfs does not have: a tenant that is missing is made, with its
// settings and rules; a tenant that is there stays as it is, so that what an operator wrote
// survives a restart of the agent. The tenant `default` is always there: of it, a value that equals
// the kernel's own default counts as not written. On a reload, which the user asks for, the file
// wins for every key and rule that it names. Tenants that it does not name are left alone.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "sched/module/kernel_rules.h"
#include "sched/tenants/config.h"
#include "shmctl/settings/sysfs_tree.h"

namespace gpushare {

// Logs why something could not be done to the tenant; says nothing of what was done.
void log_failure(const Result<>& done, std::string_view tenant);

// Makes the tenant in sysfs, and those above it that are not there.
Result<> make_with_above(SysfsTree& tree, std::string_view tenant);

enum class Seed { kMissing, kAll };  // at the start, on a reload

struct Seeded {
  std::vector<KernelRule> rules;  // that the kernel was given: the first ones of the file
  // Tenants into which a rule by uid may be written that comes to be known later.
  std::set<std::string> take_uid;
};
// `uid_of`: as split_rules(). What cannot be written is logged and left.
Seeded seed_sysfs(SysfsTree& tree, const TenantsConfig& config, Seed what,
                  const std::function<std::optional<uid_t>(const std::string&)>& uid_of);

// The tenants in sysfs that hold what somebody has chosen: all but a `default` as the kernel makes
// it.
std::set<std::string> written_tenants(const SysfsTree& tree);

}  // namespace gpushare
