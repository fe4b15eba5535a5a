// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/sm_partition.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "sched/spatial/group_division.h"

namespace gpushare {
namespace {

SmGroups bit(uint32_t group) { return SmGroups{1} << group; }

SmGroups all_groups(uint32_t count) { return count >= 64 ? ~SmGroups{0} : bit(count) - 1; }

// Asked for more than there is: in proportion, none below one group; `order` says who comes first
// when there are not even enough for that.
std::vector<uint32_t> entitlements(std::span<const PartitionWish> wishes,
                                   std::span<const size_t> order, uint32_t groups) {
  std::vector<uint32_t> claims;
  uint64_t sum = 0;
  for (const size_t i : order) {
    claims.push_back(std::clamp(wishes[i].groups, 1U, groups));
    sum += claims.back();
  }
  if (sum > groups) claims = divide_in_proportion(groups, claims, 1);
  std::vector<uint32_t> entitled(wishes.size());
  for (size_t i = 0; i < order.size(); ++i) entitled[order[i]] = claims[i];
  return entitled;
}

// Idle holders keep one group; the rest goes, by what they are entitled to, to those who can
// borrow.
std::vector<uint32_t> lend(std::span<const PartitionWish> wishes,
                           const std::vector<uint32_t>& entitled, uint32_t groups) {
  std::vector<uint32_t> targets = entitled;
  std::vector<uint32_t> claims;
  std::vector<size_t> borrowers;
  uint32_t spare = groups;
  for (size_t i = 0; i < wishes.size(); ++i) {
    if (wishes[i].is_idle) targets[i] = std::min(entitled[i], 1U);
    spare -= targets[i];
    if (wishes[i].is_idle || !wishes[i].can_borrow || entitled[i] == 0) continue;
    borrowers.push_back(i);
    claims.push_back(entitled[i]);
  }
  const std::vector<uint32_t> lent = divide_in_proportion(spare, claims, 0);
  for (size_t i = 0; i < borrowers.size(); ++i) targets[borrowers[i]] += lent[i];
  return targets;
}

}  // namespace

uint32_t SmGeometry::sms_of(SmGroups set) const {
  const auto others = static_cast<uint32_t>(std::popcount(set & ~last()));
  const uint32_t of_last = (set & last()) != 0 ? sms - (groups - 1) * sms_per_group : 0;
  return others * sms_per_group + of_last;
}

SmGeometry geometry_of(uint32_t sm_count) {
  constexpr uint32_t kSmsPerGroup = 8;
  return {.groups = std::clamp(sm_count / kSmsPerGroup, 1U, 64U),
          .sms_per_group = kSmsPerGroup,
          .sms = sm_count};
}

uint32_t groups_of_percent(uint32_t percent, const SmGeometry& geometry) {
  const uint64_t whole = 100ULL * geometry.sms_per_group;
  const uint64_t nearest = (static_cast<uint64_t>(percent) * geometry.sms + whole / 2) / whole;
  return static_cast<uint32_t>(std::clamp<uint64_t>(nearest, 1, geometry.groups));
}

SmPartition::SmPartition(const SmGeometry& geometry) : geometry_(geometry) {
  assert(geometry.groups >= 1 && geometry.groups <= 64);
}

std::vector<PartitionGrant> SmPartition::plan(std::span<const PartitionWish> wishes) {
  std::vector<size_t> order;  // those that have groups already come first
  for (const bool is_new : {false, true})
    for (size_t i = 0; i < wishes.size(); ++i)
      if (!wishes[i].is_leaving && (ordered(wishes[i].holder) == 0) == is_new) order.push_back(i);
  const std::vector<uint32_t> entitled = entitlements(wishes, order, geometry_.groups);
  const std::vector<uint32_t> targets = lend(wishes, entitled, geometry_.groups);
  std::vector<Holder> holders;
  std::vector<PartitionGrant> grants;
  for (size_t i = 0; i < wishes.size(); ++i) {
    Holder* const known = find(wishes[i].holder);
    Holder& holder = holders.emplace_back(known ? std::move(*known) : Holder{});
    holder.id = wishes[i].holder;
    holder.target = wishes[i].is_leaving ? static_cast<uint32_t>(holder.groups.size()) : targets[i];
    grants.push_back({holder.id, entitled[i], targets[i]});
  }
  holders_ = std::move(holders);
  return grants;
}

std::vector<PartitionOrder> SmPartition::take_orders() {
  for (Holder& holder : holders_) {
    if (holder.is_asked || holder.groups.size() <= holder.target) continue;
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
      if (holder.is_asked || holder.target <= has) continue;
      const uint32_t lacks = has == 0 ? 1'000 : holder.target - has;
      if (lacks > most) {
        most = lacks;
        neediest = &holder;
      }
    }
    if (!neediest) break;
    uint32_t starving = 0;  // others with nothing get one each before anybody gets a second
    for (const Holder& holder : holders_)
      starving += &holder != neediest && holder.groups.empty() && holder.target > 0;
    const auto there = static_cast<uint32_t>(std::popcount(free));
    const uint32_t most_now = there > starving ? there - starving : 1;
    const auto has = static_cast<uint32_t>(neediest->groups.size());
    grow(*neediest, std::min(neediest->target - has, most_now), free);
  }
  std::vector<PartitionOrder> orders;
  for (const uint32_t id : pending_) {
    const Holder* const holder = find(id);
    if (holder && holder->is_asked) orders.push_back({id, mask(*holder)});
  }
  pending_.clear();
  return orders;
}

bool SmPartition::has_most(const Holder& holder) const {
  return std::ranges::none_of(holders_,
                              [&](const Holder& other) { return other.target > holder.target; });
}

void SmPartition::grow(Holder& holder, uint32_t by, SmGroups& free) {
  for (; by > 0; --by) {
    const bool takes_last =
        (free & geometry_.last()) != 0 && geometry_.is_last_larger() && has_most(holder);
    const auto group =
        static_cast<uint8_t>(takes_last ? geometry_.groups - 1 : std::countr_zero(free));
    free &= ~bit(group);
    holder.groups.push_back(group);
    holder.in_use |= bit(group);
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

SmGroups SmPartition::ordered(uint32_t id) const {
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
  for (const uint8_t group : holder.groups) groups |= bit(group);
  return groups;
}

}  // namespace gpushare
