// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/sm_partition.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "sched/spatial/group_division.h"

namespace gpushare {
namespace {

SmGroups all_groups(uint32_t count) { return count >= 64 ? ~SmGroups{0} : bit_of(count) - 1; }

// The groups below which none of `order` is to come, all together at most `groups`.
std::vector<uint32_t> leasts(std::span<const PlannedHolder> planned, std::span<const size_t> order,
                             uint32_t groups) {
  std::vector<uint32_t> least;
  uint64_t sum = 0;
  for (const size_t i : order) {
    least.push_back(std::clamp(planned[i].least, 1U, groups));
    sum += least.back();
  }
  if (sum > groups) std::ranges::fill(least, 1U);
  return least;
}

// More planned than there is: in proportion, none below its least. `order` says which holders come
// first when there are not even enough groups for that.
std::vector<uint32_t> entitlements(std::span<const PlannedHolder> planned,
                                   std::span<const size_t> order, std::span<const uint32_t> least,
                                   uint32_t groups) {
  std::vector<uint32_t> demands;
  uint64_t sum = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    demands.push_back(std::clamp(std::max(planned[order[i]].groups, least[i]), 1U, groups));
    sum += demands.back();
  }
  if (sum > groups) demands = divide_in_proportion(groups, demands, least);
  std::vector<uint32_t> entitled(planned.size());
  for (size_t i = 0; i < order.size(); ++i) entitled[order[i]] = demands[i];
  return entitled;
}

// Idle holders keep their least; the rest goes, by what they are entitled to, to those who can
// borrow.
std::vector<uint32_t> lend(std::span<const PlannedHolder> planned,
                           const std::vector<uint32_t>& entitled,
                           const std::vector<uint32_t>& least, uint32_t groups) {
  std::vector<uint32_t> targets = entitled;
  std::vector<uint32_t> demands;
  std::vector<size_t> borrowers;
  uint32_t spare = groups;
  for (size_t i = 0; i < planned.size(); ++i) {
    if (planned[i].is_idle) targets[i] = std::min(entitled[i], least[i]);
    spare -= targets[i];
    if (planned[i].is_idle || !planned[i].can_borrow || entitled[i] == 0) continue;
    borrowers.push_back(i);
    demands.push_back(entitled[i]);
  }
  const std::vector<uint32_t> lent = divide_in_proportion(spare, demands, 0);
  for (size_t i = 0; i < borrowers.size(); ++i) targets[borrowers[i]] += lent[i];
  return targets;
}

}  // namespace

SmPartition::SmPartition(const SmGeometry& geometry) : geometry_(geometry) {
  assert(geometry.groups >= 1 && geometry.groups <= 64);
}

std::vector<HolderSize> SmPartition::plan(std::span<const PlannedHolder> planned) {
  std::vector<size_t> order;  // those that have groups already come first
  for (const bool is_new : {false, true})
    for (size_t i = 0; i < planned.size(); ++i)
      if (!planned[i].is_leaving && (assigned(planned[i].holder) == 0) == is_new)
        order.push_back(i);
  const std::vector<uint32_t> ordered = leasts(planned, order, geometry_.groups);
  std::vector<uint32_t> least(planned.size(), 1);
  for (size_t i = 0; i < order.size(); ++i) least[order[i]] = ordered[i];
  const std::vector<uint32_t> entitled = entitlements(planned, order, ordered, geometry_.groups);
  const std::vector<uint32_t> targets = lend(planned, entitled, least, geometry_.groups);
  std::vector<Holder> holders;
  std::vector<HolderSize> sizes;
  for (size_t i = 0; i < planned.size(); ++i) {
    Holder* const known = find(planned[i].holder);
    Holder& holder = holders.emplace_back(known ? std::move(*known) : Holder{});
    holder.id = planned[i].holder;
    holder.least = std::min(least[i], std::max(targets[i], 1U));
    holder.target =
        planned[i].is_leaving ? static_cast<uint32_t>(holder.groups.size()) : targets[i];
    sizes.push_back({holder.id, entitled[i], targets[i]});
  }
  holders_ = std::move(holders);
  return sizes;
}

std::vector<Assignment> SmPartition::take_assignments() {
  for (Holder& holder : holders_) {
    if (holder.is_asked || holder.groups.size() <= holder.target) continue;
    order_last_group(holder);
    holder.groups.resize(holder.target);
    holder.is_asked = true;
    pending_.push_back(holder.id);
  }
  // Those with nothing first, then whoever lacks most.
  SmGroups free = free_groups();
  while (free != 0) {
    Holder* neediest = nullptr;
    uint32_t most = 0;
    for (Holder& holder : holders_) {
      const auto has = static_cast<uint32_t>(holder.groups.size());
      if (holder.is_asked || growth(holder, static_cast<uint32_t>(std::popcount(free))) == 0)
        continue;
      const uint32_t lacks = has == 0 ? 1'000 : holder.target - has;
      if (lacks > most) {
        most = lacks;
        neediest = &holder;
      }
    }
    if (!neediest) break;
    grow(*neediest, growth(*neediest, static_cast<uint32_t>(std::popcount(free))), free);
  }
  std::vector<Assignment> assignments;
  for (const uint32_t id : pending_) {
    const Holder* const holder = find(id);
    if (holder && holder->is_asked) assignments.push_back({id, mask(*holder)});
  }
  pending_.clear();
  return assignments;
}

// How many of so many free groups the holder gets now. Others with nothing get their least before
// anybody gets more than that.
uint32_t SmPartition::growth(const Holder& holder, uint32_t free) const {
  const auto has = static_cast<uint32_t>(holder.groups.size());
  if (holder.target <= has) return 0;
  uint32_t starving = 0;
  for (const Holder& other : holders_)
    if (&other != &holder && other.groups.empty() && other.target > 0) starving += other.least;
  const uint32_t must = has < holder.least ? holder.least - has : 1;
  const uint32_t by =
      std::min(holder.target - has, std::max(free - std::min(free, starving), must));
  return by <= free ? by : 0;
}

bool SmPartition::has_most(const Holder& holder) const {
  return std::ranges::none_of(holders_,
                              [&](const Holder& other) { return other.target > holder.target; });
}

// Before the holder gives up groups: the larger last one goes first where another grows and is to
// have more, and is not kept alone.
void SmPartition::order_last_group(Holder& holder) const {
  const auto last = std::ranges::find(holder.groups, geometry_.groups - 1);
  if (!geometry_.is_last_larger() || last == holder.groups.end()) return;
  const bool goes_to_another = std::ranges::any_of(holders_, [&](const Holder& other) {
    return other.target > holder.target && other.target > other.groups.size();
  });
  if (holder.target == 1 || goes_to_another) std::rotate(last, last + 1, holder.groups.end());
}

void SmPartition::grow(Holder& holder, uint32_t by, SmGroups& free) {
  for (; by > 0; --by) {
    const bool stays_alone = holder.groups.empty() && by == 1;
    const bool takes_last = (free & geometry_.last()) != 0 && geometry_.is_last_larger() &&
                            has_most(holder) && !stays_alone;
    const auto group =
        static_cast<uint8_t>(takes_last ? geometry_.groups - 1 : std::countr_zero(free));
    free &= ~bit_of(group);
    holder.groups.push_back(group);
    holder.in_use |= bit_of(group);
  }
  holder.is_asked = true;
  pending_.push_back(holder.id);
}

void SmPartition::confirm(uint32_t id, SmGroups groups) {
  Holder* const holder = find(id);
  if (!holder || !holder->is_asked || groups != mask(*holder)) return;
  holder->is_asked = false;
  holder->in_use = groups;
}

void SmPartition::remove(uint32_t id) {
  std::erase_if(holders_, [&](const Holder& holder) { return holder.id == id; });
}

SmGroups SmPartition::in_use(uint32_t id) const {
  const Holder* const holder = find(id);
  return holder ? holder->in_use : 0;
}

SmGroups SmPartition::assigned(uint32_t id) const {
  const Holder* const holder = find(id);
  return holder ? mask(*holder) : 0;
}

bool SmPartition::is_settled() const {
  return std::ranges::none_of(holders_, [](const Holder& holder) {
    return holder.is_asked || (holder.target > 0 && holder.groups.size() != holder.target);
  });
}

SmPartition::Holder* SmPartition::find(uint32_t id) {
  const auto found = std::ranges::find(holders_, id, &Holder::id);
  return found == holders_.end() ? nullptr : &*found;
}

const SmPartition::Holder* SmPartition::find(uint32_t id) const {
  const auto found = std::ranges::find(holders_, id, &Holder::id);
  return found == holders_.end() ? nullptr : &*found;
}

SmGroups SmPartition::free_groups() const {
  SmGroups used = 0;
  for (const Holder& holder : holders_) used |= holder.in_use;
  return all_groups(geometry_.groups) & ~used;
}

SmGroups SmPartition::mask(const Holder& holder) {
  SmGroups groups = 0;
  for (const uint8_t group : holder.groups) groups |= bit_of(group);
  return groups;
}

}  // namespace gpushare
