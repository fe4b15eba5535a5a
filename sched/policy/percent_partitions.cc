// SPDX-License-Identifier: Apache-2.0
#include "sched/policy/percent_partitions.h"

#include <algorithm>

namespace gpushare {

std::vector<PlannedPartition> partitions_by_percent(const Snapshot& snapshot) {
  std::vector<PlannedPartition> partitions;
  for (const TenantView& tenant : snapshot.tenants) {
    if (!tenant.has_shim) continue;
    const uint32_t percent = tenant.sm_percent.value_or(100);
    partitions.push_back(
        {.tenants = {tenant.id}, .groups = groups_of_percent(percent, snapshot.gpu.geometry)});
  }
  return partitions;
}

}  // namespace gpushare
