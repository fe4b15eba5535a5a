// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/sm_neighbours.h"

#include <algorithm>

namespace gpushare {

SmGroups SmNeighbours::mask(const Came& came) {
  SmGroups groups = 0;
  for (const uint8_t group : came) groups |= bit_of(group);
  return groups;
}

// The larger last group goes first where another would have more than what is left, and is not kept
// alone (sm_partition.h).
uint32_t SmNeighbours::given_up_next(const Came& came) const {
  const uint32_t last = geometry_.groups - 1;
  const bool has_odd = geometry_.is_last_larger() && std::ranges::find(came, last) != came.end();
  const bool gives_odd = has_odd && std::ranges::any_of(tenants_, [&](const auto& entry) {
                           const Came& other = entry.second;
                           return (mask(other) & mask(came)) == 0 && other.size() + 2 > came.size();
                         });
  if (gives_odd || (has_odd && came.size() == 2)) return last;
  return came.back();
}

void SmNeighbours::update(const std::map<uint32_t, SmGroups>& sets) {
  std::erase_if(tenants_, [&](const auto& entry) { return !sets.contains(entry.first); });
  for (const auto& entry : sets) {
    Came& came = tenants_[entry.first];
    const SmGroups groups = entry.second;
    std::erase_if(came, [groups](uint8_t group) { return (groups & bit_of(group)) == 0; });
    const SmGroups had = mask(came);
    const SmGroups fresh = groups & ~had;
    const SmGroups first = geometry_.is_last_larger() ? fresh & geometry_.last() : 0;
    if (first != 0) came.push_back(static_cast<uint8_t>(geometry_.groups - 1));
    for (uint32_t group = 0; group < geometry_.groups; ++group)
      if ((fresh & ~first & bit_of(group)) != 0) came.push_back(static_cast<uint8_t>(group));
  }
}

SmNeighbours::Sets SmNeighbours::of(uint32_t tenant) const {
  Sets sets{};
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end() || found->second.empty()) return sets;
  const SmGroups own = mask(found->second);
  std::size_t count = 0;
  const auto add = [&](SmGroups set) {
    if (count < kMost && std::ranges::find(sets, set) == sets.end()) sets[count++] = set;
  };
  add(own & ~bit_of(given_up_next(found->second)));
  SmGroups taken = 0;
  for (const auto& entry : tenants_) taken |= mask(entry.second);
  for (uint32_t group = 0; group < geometry_.groups; ++group)
    if ((taken & bit_of(group)) == 0) {
      add(own | bit_of(group));
      return sets;
    }
  for (const auto& [other, came] : tenants_)
    if (came.size() > 1 && (mask(came) & own) == 0) add(own | bit_of(given_up_next(came)));
  return sets;
}

}  // namespace gpushare
