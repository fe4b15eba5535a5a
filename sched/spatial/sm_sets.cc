// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/sm_sets.h"

#include <algorithm>
#include <bit>
#include <tuple>

namespace gpushare {

std::map<uint32_t, SetSize> SmSets::plan(std::span<const PlannedSet> planned) {
  std::map<uint32_t, Tenant> present;
  for (const PlannedSet& one : planned)
    for (const uint32_t tenant : one.tenants) present[tenant] = tenants_[tenant];
  tenants_ = std::move(present);

  const std::vector<uint32_t> sets = choose_sets(planned);
  std::vector<PlannedHolder> holders;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    for (const uint32_t tenant : planned[i].tenants) tenants_[tenant].planned = sets[i];
    holders.push_back({.holder = sets[i],
                       .groups = planned[i].groups,
                       .is_idle = planned[i].is_idle,
                       .can_borrow = planned[i].can_borrow,
                       .least = planned[i].least});
  }
  for (const uint32_t set : sets_)
    if (std::ranges::find(sets, set) == sets.end() && is_inhabited(set))
      holders.push_back({.holder = set, .is_leaving = true});
  sets_.clear();
  std::map<uint32_t, SetSize> sizes;
  const std::vector<HolderSize> had = partition_.plan(holders);
  for (std::size_t i = 0; i < had.size(); ++i) {
    sets_.push_back(had[i].holder);
    if (i >= planned.size()) continue;
    const auto sharers = static_cast<uint32_t>(planned[i].tenants.size());
    for (const uint32_t tenant : planned[i].tenants)
      sizes[tenant] = {had[i].entitled, had[i].target, sharers, had[i].holder};
  }
  return sizes;
}

// The set that most of its members were told, of two alike the larger one. So a tenant in a set
// that nobody has any more has another one to go to, and no set waits for groups of one that waits
// for it. Otherwise the set that most of them wait for; otherwise a new one.
std::vector<uint32_t> SmSets::choose_sets(std::span<const PlannedSet> planned) {
  std::vector<uint32_t> sets(planned.size(), kNone);
  for (const auto member : {&Tenant::told, &Tenant::planned})
    for (const Vote& vote : votes(planned, member))
      if (sets[vote.place] == kNone && std::ranges::find(sets, vote.set) == sets.end())
        sets[vote.place] = vote.set;
  for (uint32_t& set : sets)
    if (set == kNone) set = next_set_++;
  return sets;
}

std::vector<SmSets::Vote> SmSets::votes(std::span<const PlannedSet> planned,
                                        uint32_t Tenant::* member) const {
  std::vector<Vote> votes;
  for (std::size_t place = 0; place < planned.size(); ++place) {
    std::map<uint32_t, uint32_t> by_set;
    for (const uint32_t tenant : planned[place].tenants)
      if (const uint32_t set = tenants_.at(tenant).*member; set != kNone) ++by_set[set];
    for (const auto& [set, count] : by_set)
      votes.push_back({count, std::popcount(partition_.assigned(set)), place, set});
  }
  std::ranges::sort(votes, {}, [](const Vote& vote) {
    return std::tuple(-int64_t{vote.count}, -vote.groups, vote.place, vote.set);
  });
  return votes;
}

std::vector<Assignment> SmSets::take_assignments() {
  partition_.take_assignments();  // to the sets; each tenant compares its own
  std::vector<Assignment> assignments;
  for (auto& [id, tenant] : tenants_) {
    if (tenant.is_asked) continue;
    const bool is_there = partition_.assigned(tenant.planned) != 0;
    const uint32_t set = is_there ? tenant.planned : tenant.told;
    const SmGroups groups = set == kNone ? 0 : partition_.assigned(set);
    if (groups == 0 || (set == tenant.resides && groups == tenant.confirmed)) continue;
    tenant.told = set;
    tenant.assigned = groups;
    tenant.is_asked = true;
    assignments.push_back({id, groups});
  }
  settle_sets();
  return assignments;
}

void SmSets::confirm(uint32_t id, SmGroups groups) {
  const auto found = tenants_.find(id);
  if (found == tenants_.end()) return;
  Tenant& tenant = found->second;
  if (!tenant.is_asked || groups != tenant.assigned) return;
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
    const SmGroups groups = partition_.assigned(set);
    const bool is_done = std::ranges::all_of(tenants_, [&](const auto& entry) {
      const Tenant& tenant = entry.second;
      if (tenant.told != set && tenant.resides != set) return true;
      return !tenant.is_asked && tenant.resides == set && tenant.confirmed == groups;
    });
    if (is_done) partition_.confirm(set, groups);
  }
  std::erase_if(sets_, [&](uint32_t set) {
    const bool is_planned = std::ranges::any_of(
        tenants_, [&](const auto& entry) { return entry.second.planned == set; });
    if (is_planned || is_inhabited(set)) return false;
    partition_.remove(set);
    return true;
  });
}

SmGroups SmSets::in_use(uint32_t id) const {
  const auto found = tenants_.find(id);
  if (found == tenants_.end()) return 0;
  const Tenant& tenant = found->second;
  return tenant.is_asked ? tenant.confirmed | tenant.assigned : tenant.confirmed;
}

SmGroups SmSets::assigned(uint32_t id) const {
  const auto found = tenants_.find(id);
  return found == tenants_.end() ? 0 : found->second.assigned;
}

bool SmSets::is_settled() const {
  return partition_.is_settled() && std::ranges::all_of(tenants_, [&](const auto& entry) {
           const Tenant& tenant = entry.second;
           if (tenant.is_asked) return false;
           const SmGroups groups = partition_.assigned(tenant.planned);
           return groups == 0 || (tenant.resides == tenant.planned && tenant.confirmed == groups);
         });
}

}  // namespace gpushare
