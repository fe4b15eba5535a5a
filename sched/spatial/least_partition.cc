// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/least_partition.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace gpushare {

LeastPartition shown_partition(const TenantSettings& settings) {
  if (!settings.sm_shown) return {};
  return {.percent = settings.sm_min, .as_share = settings.sm_percent.value_or(0)};
}

uint32_t groups_of_least(const LeastPartition& least, const SmGeometry& geometry) {
  const uint64_t of_percent = (uint64_t{least.percent} * geometry.sms + 99) / 100;
  const auto sms = static_cast<uint32_t>(std::max<uint64_t>(of_percent, least.sms));
  uint32_t groups = least.as_share == 0 ? 1 : groups_of_percent(least.as_share, geometry);
  while (groups < geometry.groups && geometry.sms_of_count(groups) < sms) ++groups;
  return groups;
}

void share_what_does_not_fit(std::vector<PlannedSet>& sets, uint32_t groups) {
  for (PlannedSet& set : sets) set.least = std::min(set.least, groups);
  const auto all = [&] {
    return std::transform_reduce(sets.begin(), sets.end(), uint32_t{0}, std::plus<>(),
                                 [](const PlannedSet& set) { return set.least; });
  };
  while (sets.size() > 1 && all() > groups) {
    const auto first = std::ranges::max_element(sets, {}, &PlannedSet::least);
    if (first->least == 1) return;
    PlannedSet joined = std::move(*first);
    sets.erase(first);
    const auto second = std::ranges::max_element(sets, {}, &PlannedSet::least);
    joined.tenants.insert(joined.tenants.end(), second->tenants.begin(), second->tenants.end());
    joined.groups = std::min(joined.groups + second->groups, groups);
    joined.is_idle = joined.is_idle && second->is_idle;
    joined.can_borrow = joined.can_borrow || second->can_borrow;
    *second = std::move(joined);
  }
}

}  // namespace gpushare
