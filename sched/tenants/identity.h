// SPDX-License-Identifier: Apache-2.0
// What /proc says of a process, as rules and inheritance want it. One thread.
#pragma once

#include "sched/tenants/proc_reader.h"
#include "sched/tenants/rules.h"

namespace gpushare {

// Of one that has ended, or whose pid is another's by now: only its id.
ProcessFacts facts_of(const ProcessId& process, const ProcReader& processes);

}  // namespace gpushare
