// SPDX-License-Identifier: Apache-2.0
#include "sched/policy/percent_partitions.h"

#include <algorithm>
#include <utility>

namespace gpushare {

std::vector<PlannedPartition> partitions_by_percent(const Snapshot& snapshot, Nanos lend_after) {
  const SmGeometry& geometry = snapshot.gpu.geometry;
  std::vector<PlannedPartition> partitions;
  const auto make = [&](std::vector<uint32_t> tenants, uint32_t groups) {
    return PlannedPartition{.tenants = std::move(tenants),
                            .groups = groups,
                            .idle_after = lend_after,
                            .is_returned_at_once = lend_after < PlannedPartition::kIdleAfter};
  };
  PlannedPartition common = make({}, geometry.groups);
  for (const TenantView& tenant : snapshot.tenants) {
    if (!tenant.has_shim) continue;
    if (!tenant.sm_percent && snapshot.gpu.has_overlap) {
      common.tenants.push_back(tenant.id);
      continue;
    }
    const uint32_t groups = groups_of_percent(tenant.sm_percent.value_or(100), geometry);
    common.groups -= std::min(groups, common.groups - 1);
    partitions.push_back(make({tenant.id}, groups));
  }
  if (!common.tenants.empty()) partitions.push_back(std::move(common));
  if (partitions.size() == 1)
    partitions.front().idle_after = Nanos::max();  // there is nobody to lend to
  return partitions;
}

}  // namespace gpushare
