// SPDX-License-Identifier: Apache-2.0
// What /proc says of a process, in the form that rules and inheritance use. Called on the agent's
// thread.
#pragma once

#include "sched/tenants/proc_reader.h"
#include "sched/tenants/rules.h"

namespace gpushare {

// For a process that has ended, or whose pid belongs to another process by now, only the id is set.
ProcessIdentity identity_of(const ProcessId& process, const ProcReader& processes);

}  // namespace gpushare
