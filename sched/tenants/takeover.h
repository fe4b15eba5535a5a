// SPDX-License-Identifier: Apache-2.0
// What a new agent takes over from one that died: the settings made at run time, the transient
// tenants of `gpushare run`, and which process belongs where. All of it is read from the control
// plane's records. An agent that stops by itself clears them, so that only an agent that crashed,
// or that handed over because the kernel module has come, leaves anything to take over. A crash
// loses the attachments of processes that were on no GPU (a shell), and freezes of single processes
// by the user. Called on the agent's thread, at its start and its end.
#pragma once

#include <set>
#include <string>

#include "sched/tenants/proc_reader.h"
#include "sched/tenants/tenant_control.h"
#include "sched/tenants/tenants.h"
#include "shmctl/plane/region.h"

namespace gpushare {

// Call it with the configuration loaded, before anything is published. `control` changes `tenants`.
// The tenants named in `kept` stay as they are. What cannot be taken over is logged and left.
void take_over_tenants(const ControlPlane& plane, const ProcReader& processes, Tenants& tenants,
                       TenantControl& control, const std::set<std::string>& kept = {});

// The same where sysfs has kept tenants and settings, and the kernel knows which process belongs
// where: only which tenants the user froze.
void take_over_frozen(const ControlPlane& plane, Tenants& tenants);
// Says which of the two it is: true if the agent that wrote the records mirrored sysfs.
bool were_tenants_in_sysfs(const ControlPlane& plane);

// Clears the records of GPUs and of the processes on them: the region of an agent without a GPU.
void clear_gpus(Region& region);
// Clears all records: the region without an agent. The ledger stays.
void clear_records(Region& region);

}  // namespace gpushare
