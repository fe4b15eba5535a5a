// SPDX-License-Identifier: Apache-2.0
// From one agent to the next. What was set at run time is in the roster (shmctl/plane/roster.h),
// which Tenants reads and writes itself. Here is what happens to it at an agent's start, and which
// records go at an agent's end. Called on the agent's thread; write_ending() by the supervisor too.
#pragma once

#include <functional>

#include "sched/tenants/proc_reader.h"
#include "sched/tenants/tenants.h"
#include "shmctl/base/clock.h"
#include "shmctl/plane/layout.h"

namespace gpushare {

// Ends those processes of which nobody reports the end, and that have ended with all of their line,
// and the scopes (NAME.scope) that are empty: at the agent's start and about once a second.
// Transient tenants go with them. Those that are kept are left for a later call: work of some may
// remain on the GPUs (OwnerList::with_clients() says of which).
void end_the_dead(Tenants& tenants, const ProcReader& processes,
                  const std::function<bool(const ProcessId&)>& is_kept = {});

// Clears the records of GPUs and of the processes on them: the region of an agent without a GPU.
void clear_gpus(Region& region);
// Clears all records of an agent that ends. The ledger and the roster stay, and of each tenant what
// was set and what it has used.
void clear_records(Region& region);
// Says how an agent has ended, for `gpushare status`.
void write_ending(Region& region, uint32_t agent_pid, EndingKind kind, uint32_t code, Time now);

}  // namespace gpushare
