// SPDX-License-Identifier: Apache-2.0
// What a new agent takes over from one that died: the settings made at run time, the transient
// tenants of `gpushare run`, and which process belongs where, all read from the control plane's
// records. An agent that stops by itself clears them, so only a crash, or an agent that hands over
// (because the kernel module has come), leaves anything to take over. What is lost by a crash:
// attachments of processes that were on no GPU (a shell), and freezes of single processes by the
// user.
#pragma once

#include <set>
#include <string>

#include "sched/tenants/proc_reader.h"
#include "sched/tenants/tenant_control.h"
#include "sched/tenants/tenants.h"
#include "shmctl/plane/region.h"

namespace gpushare {

// Call with the configuration loaded, before anything is published. `control` changes `tenants`.
// Who is in `kept` stays as it is. What cannot be taken over is logged and left.
void restore_tenants(const ControlPlane& plane, const ProcReader& processes, Tenants& tenants,
                     TenantControl& control, const std::set<std::string>& kept = {});

// The same where sysfs has kept tenants and settings, and the kernel knows who belongs where: which
// tenants the user froze.
void restore_frozen(const ControlPlane& plane, Tenants& tenants);
// Which of the two it is: did the one who wrote the records only mirror sysfs?
bool were_tenants_in_sysfs(const ControlPlane& plane);

// As a region without a GPU looks.
void clear_gpus(Region& region);
// As a region without an agent looks. The ledger stays.
void clear_records(Region& region);

}  // namespace gpushare
