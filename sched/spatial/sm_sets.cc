// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/sm_sets.h"

#include <algorithm>
#include <bit>
#include <tuple>

namespace gpushare {

std::map<uint32_t, SetGrant> SmSets::plan(std::span<const SetWish> wishes) {
  std::map<uint32_t, Tenant> present;
  for (const SetWish& wish : wishes)
    for (const uint32_t tenant : wish.tenants) present[tenant] = tenants_[tenant];
  tenants_ = std::move(present);

  const std::vector<uint32_t> sets = choose_sets(wishes);
  std::vector<PartitionWish> parts;
  for (std::size_t i = 0; i < wishes.size(); ++i) {
    for (const uint32_t tenant : wishes[i].tenants) tenants_[tenant].wished = sets[i];
    parts.push_back({.holder = sets[i],
                     .groups = wishes[i].groups,
                     .is_idle = wishes[i].is_idle,
                     .can_borrow = wishes[i].can_borrow});
  }
  for (const uint32_t set : sets_)
    if (std::ranges::find(sets, set) == sets.end() && is_inhabited(set))
      parts.push_back({.holder = set, .is_leaving = true});
  sets_.clear();
  std::map<uint32_t, SetGrant> grants;
  const std::vector<PartitionGrant> granted = partition_.plan(parts);
  for (std::size_t i = 0; i < granted.size(); ++i) {
    sets_.push_back(granted[i].holder);
    if (i >= wishes.size()) continue;
    const auto sharers = static_cast<uint32_t>(wishes[i].tenants.size());
    for (const uint32_t tenant : wishes[i].tenants)
      grants[tenant] = {granted[i].entitled, granted[i].target, sharers, granted[i].holder};
  }
  return grants;
}

// The set that most of its members were told, of two alike the larger one. So whoever is in a set
// that nobody has any more has another one to go to, and no set waits for groups of one that waits
// for it. Who gets none so, the one that it waited for, or a new one.
std::vector<uint32_t> SmSets::choose_sets(std::span<const SetWish> wishes) {
  std::vector<uint32_t> sets(wishes.size(), kNone);
  for (const auto member : {&Tenant::told, &Tenant::wished})
    for (const Vote& vote : votes(wishes, member))
      if (sets[vote.wish] == kNone && std::ranges::find(sets, vote.set) == sets.end())
        sets[vote.wish] = vote.set;
  for (uint32_t& set : sets)
    if (set == kNone) set = next_set_++;
  return sets;
}

std::vector<SmSets::Vote> SmSets::votes(std::span<const SetWish> wishes,
                                        uint32_t Tenant::* member) const {
  std::vector<Vote> votes;
  for (std::size_t wish = 0; wish < wishes.size(); ++wish) {
    std::map<uint32_t, uint32_t> by_set;
    for (const uint32_t tenant : wishes[wish].tenants)
      if (const uint32_t set = tenants_.at(tenant).*member; set != kNone) ++by_set[set];
    for (const auto& [set, count] : by_set)
      votes.push_back({count, std::popcount(partition_.ordered(set)), wish, set});
  }
  std::ranges::sort(votes, {}, [](const Vote& vote) {
    return std::tuple(-int64_t{vote.count}, -vote.groups, vote.wish, vote.set);
  });
  return votes;
}

std::vector<SetOrder> SmSets::take_orders() {
  partition_.take_orders();  // to the sets; each tenant compares its own
  std::vector<SetOrder> orders;
  for (auto& [id, tenant] : tenants_) {
    if (tenant.is_asked) continue;
    const bool is_there = partition_.ordered(tenant.wished) != 0;
    const uint32_t set = is_there ? tenant.wished : tenant.told;
    const SmGroups groups = set == kNone ? 0 : partition_.ordered(set);
    if (groups == 0 || (set == tenant.resides && groups == tenant.confirmed)) continue;
    tenant.told = set;
    tenant.order = groups;
    tenant.is_asked = true;
    orders.push_back({id, groups});
  }
  settle_sets();
  return orders;
}

void SmSets::confirm(uint32_t id, SmGroups groups) {
  const auto found = tenants_.find(id);
  if (found == tenants_.end()) return;
  Tenant& tenant = found->second;
  if (!tenant.is_asked || groups != tenant.order) return;
  tenant.is_asked = false;
  tenant.resides = tenant.told;
  tenant.confirmed = groups;
  settle_sets();
}

bool SmSets::is_inhabited(uint32_t set) const {
  return std::ranges::any_of(tenants_, [&](const auto& entry) {
    return entry.second.told == set || entry.second.resides == set;
  });
}

// A set has done what it was told when nobody in it uses anything else.
void SmSets::settle_sets() {
  for (const uint32_t set : sets_) {
    const SmGroups groups = partition_.ordered(set);
    const bool is_done = std::ranges::all_of(tenants_, [&](const auto& entry) {
      const Tenant& tenant = entry.second;
      if (tenant.told != set && tenant.resides != set) return true;
      return !tenant.is_asked && tenant.resides == set && tenant.confirmed == groups;
    });
    if (is_done) partition_.confirm(set, groups);
  }
  std::erase_if(sets_, [&](uint32_t set) {
    const bool is_wished = std::ranges::any_of(
        tenants_, [&](const auto& entry) { return entry.second.wished == set; });
    if (is_wished || is_inhabited(set)) return false;
    partition_.remove(set);
    return true;
  });
}

SmGroups SmSets::in_use(uint32_t id) const {
  const auto found = tenants_.find(id);
  if (found == tenants_.end()) return 0;
  const Tenant& tenant = found->second;
  return tenant.is_asked ? tenant.confirmed | tenant.order : tenant.confirmed;
}

SmGroups SmSets::ordered(uint32_t id) const {
  const auto found = tenants_.find(id);
  return found == tenants_.end() ? 0 : found->second.order;
}

bool SmSets::is_settled() const {
  return partition_.is_settled() && std::ranges::all_of(tenants_, [&](const auto& entry) {
           const Tenant& tenant = entry.second;
           if (tenant.is_asked) return false;
           const SmGroups groups = partition_.ordered(tenant.wished);
           return groups == 0 || (tenant.resides == tenant.wished && tenant.confirmed == groups);
         });
}

}  // namespace gpushare
