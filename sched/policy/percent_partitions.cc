// SPDX-License-Identifier: Apache-2.0
#include "sched/policy/percent_partitions.h"

#include <algorithm>
#include <utility>

namespace gpushare {

std::vector<PlannedPartition> partitions_by_percent(const Snapshot& snapshot) {
  const SmGeometry& geometry = snapshot.gpu.geometry;
  std::vector<PlannedPartition> partitions;
  PlannedPartition common{.tenants = {}, .groups = geometry.groups};
  for (const TenantView& tenant : snapshot.tenants) {
    if (!tenant.has_shim) continue;
    if (!tenant.sm_percent && snapshot.gpu.has_overlap) {
      common.tenants.push_back(tenant.id);
      continue;
    }
    const uint32_t groups = groups_of_percent(tenant.sm_percent.value_or(100), geometry);
    common.groups -= std::min(groups, common.groups - 1);
    partitions.push_back({.tenants = {tenant.id}, .groups = groups});
  }
  if (common.tenants.empty()) return partitions;
  if (partitions.empty()) common.idle_after = Nanos::max();  // there is nobody to lend to
  partitions.push_back(std::move(common));
  return partitions;
}

}  // namespace gpushare
