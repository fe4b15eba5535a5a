// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/identity.h"

#include <utility>

namespace gpushare {

ProcessIdentity identity_of(const ProcessId& process, const ProcReader& processes) {
  ProcessIdentity identity;
  identity.id = process;
  const auto details = processes.details(process.pid);
  if (!details || details->id != process) return identity;
  identity.uid = details->uid;
  const auto take = [&](auto answer) {
    identity.is_whole = identity.is_whole && answer.has_value();
    return std::move(answer).value_or(typename decltype(answer)::value_type{});
  };
  identity.user = take(processes.user_name(identity.uid));
  for (const uid_t owner : details->owners)
    identity.owners.push_back({owner, take(processes.user_name(owner))});
  identity.command = details->command;
  identity.command_line = details->command_line;
  identity.cgroup_path = details->cgroup;
  identity.container = take(processes.container(details->cgroup));
  identity.ancestors = processes.ancestors(process.pid);
  return identity;
}

}  // namespace gpushare
