// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/identity.h"

namespace gpushare {

ProcessFacts facts_of(const ProcessId& process, const ProcReader& processes) {
  ProcessFacts facts;
  facts.id = process;
  const auto details = processes.details(process.pid);
  if (!details || details->id != process) return facts;
  facts.uid = details->uid;
  facts.user = processes.user_name(facts.uid);
  facts.command = details->command;
  facts.command_line = details->command_line;
  facts.cgroup_path = details->cgroup;
  facts.ancestors = processes.ancestors(process.pid);
  return facts;
}

}  // namespace gpushare
