// SPDX-License-Identifier: Apache-2.0
// Partitions by sm_percent: each tenant with the shim has its own, of the nearest number of SM
// groups, and a tenant without sm_percent asks for all of them. With overlap = true the tenants
// without sm_percent have one together: what the others leave, at least one group. Without any
// others that is the whole GPU, and none of them is ever moved. Pure.
#pragma once

#include <vector>

#include "sched/policy/policy.h"

namespace gpushare {

// In the order of the tenants; of those that have a process with the shim on this GPU. Each lends
// when it has launched nothing for `lend_after`. Where that is less than kIdleAfter, as for one
// whose requests come some tens of milliseconds apart, it has its groups back with its next launch,
// which waits for them.
std::vector<PlannedPartition> partitions_by_percent(
    const Snapshot& snapshot, Nanos lend_after = PlannedPartition::kIdleAfter);

}  // namespace gpushare
