// SPDX-License-Identifier: Apache-2.0
// Tenants as the roster in the control plane holds them, and back. Pure functions.
#pragma once

#include "sched/tenants/tenants.h"
#include "shmctl/plane/layout.h"

namespace gpushare {

// What the roster keeps of a tenant: all but what the file says.
RosterTenant roster_record(const Tenant& tenant);
// The tenant without its settings from the file. Error invalid_argument for a record that no agent
// can have written.
Result<Tenant> tenant_from(const RosterTenant& record);

}  // namespace gpushare
