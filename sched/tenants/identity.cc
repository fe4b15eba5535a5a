// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/identity.h"

namespace gpushare {

ProcessIdentity identity_of(const ProcessId& process, const ProcReader& processes) {
  ProcessIdentity identity;
  identity.id = process;
  const auto details = processes.details(process.pid);
  if (!details || details->id != process) return identity;
  identity.uid = details->uid;
  identity.user = processes.user_name(identity.uid).value_or("");
  for (const uid_t owner : details->owners)
    identity.owners.push_back({owner, processes.user_name(owner).value_or("")});
  identity.command = details->command;
  identity.command_line = details->command_line;
  identity.cgroup_path = details->cgroup;
  identity.container = processes.container(details->cgroup).value_or(nullptr);
  identity.ancestors = processes.ancestors(process.pid);
  return identity;
}

}  // namespace gpushare
