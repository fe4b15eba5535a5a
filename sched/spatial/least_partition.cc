// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/least_partition.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include "sched/spatial/group_division.h"

namespace gpushare {
namespace {

void join(PlannedSet& set, PlannedSet&& other, uint32_t groups) {
  set.tenants.insert(set.tenants.end(), other.tenants.begin(), other.tenants.end());
  set.groups = std::min(set.groups + other.groups, groups);
  set.least = std::max(set.least, other.least);
  set.is_idle = set.is_idle && other.is_idle;
  set.can_borrow = set.can_borrow || other.can_borrow;
}

uint32_t planned_of(const PlannedSet& set) { return std::max(set.groups, set.least); }

uint32_t planned_beside(std::span<const PlannedSet> sets, size_t place) {
  uint32_t sum = 0;
  for (size_t i = 0; i < sets.size(); ++i)
    if (i != place) sum += planned_of(sets[i]);
  return sum;
}

// What each gets of it where more is planned than there is.
void scale_down(std::vector<PlannedSet>& sets, uint32_t groups) {
  if (sets.empty() || planned_beside(sets, sets.size()) <= groups) return;
  std::vector<uint32_t> demands, least;
  for (const PlannedSet& set : sets) {
    demands.push_back(planned_of(set));
    least.push_back(set.least);
  }
  const std::vector<uint32_t> shares = divide_in_proportion(groups, demands, least);
  for (size_t i = 0; i < sets.size(); ++i) sets[i].groups = std::max(shares[i], 1U);
}

// Gives each set what it needs at once: what nobody else is entitled to, or else sets are joined.
void join_for_needs(std::vector<PlannedSet>& sets, std::vector<SetNeeds>& needs, uint32_t groups) {
  for (size_t i = 0; i < sets.size(); ++i) {
    const auto at_once = [&] { return std::min(needs[i].at_once, groups); };
    while (sets.size() > 1 && at_once() > planned_of(sets[i]) &&
           at_once() + planned_beside(sets, i) > groups) {
      size_t largest = i == 0 ? 1 : 0;
      for (size_t other = 0; other < sets.size(); ++other)
        if (other != i && sets[other].groups > sets[largest].groups) largest = other;
      join(sets[i], std::move(sets[largest]), groups);
      raise(needs[i], needs[largest]);
      sets.erase(sets.begin() + static_cast<std::ptrdiff_t>(largest));
      needs.erase(needs.begin() + static_cast<std::ptrdiff_t>(largest));
      if (largest < i) --i;
    }
    sets[i].groups = std::max(sets[i].groups, at_once());
    sets[i].least = std::max(sets[i].least, at_once());
  }
}

}  // namespace

void raise(SetNeeds& needs, const SetNeeds& by) {
  needs = {.at_once = std::max(needs.at_once, by.at_once),
           .wished = std::max(needs.wished, by.wished)};
}

LeastPartition shown_partition(const TenantSettings& settings) {
  if (!settings.sm_shown) return {};
  return {.percent = settings.sm_min, .as_share = settings.sm_percent.value_or(0)};
}

uint32_t groups_of_least(const LeastPartition& least, const SmGeometry& geometry) {
  const uint64_t sms = (uint64_t{least.percent} * geometry.sms + 99) / 100;
  const uint32_t shown = least.as_share == 0 ? 1 : groups_of_percent(least.as_share, geometry);
  return std::max(shown, groups_of_sms(static_cast<uint32_t>(sms), geometry));
}

uint32_t groups_of_sms(uint32_t sms, const SmGeometry& geometry) {
  if (sms == 0) return 0;
  uint32_t groups = 1;
  while (groups < geometry.groups && geometry.sms_of_count(groups) < sms) ++groups;
  return groups;
}

void grant_needs(std::vector<PlannedSet>& sets, std::vector<SetNeeds> needs, uint32_t groups) {
  const bool is_any_at_once =
      std::ranges::any_of(needs, [](const SetNeeds& one) { return one.at_once > 0; });
  if (is_any_at_once) {
    scale_down(sets, groups);
    join_for_needs(sets, needs, groups);
  }
  for (size_t i = 0; i < sets.size(); ++i) {
    const uint32_t others = std::min(planned_beside(sets, i), groups);
    sets[i].groups = std::max(sets[i].groups, std::min(needs[i].wished, groups - others));
  }
}

void share_what_does_not_fit(std::vector<PlannedSet>& sets, uint32_t groups) {
  for (PlannedSet& set : sets) set.least = std::min(set.least, groups);
  const auto all = [&] {
    return std::transform_reduce(sets.begin(), sets.end(), uint32_t{0}, std::plus<>(),
                                 [](const PlannedSet& set) { return set.least; });
  };
  // The two that `first_of` names, one after the other.
  const auto join_two = [&](const auto& first_of) {
    const auto first = first_of();
    PlannedSet joined = std::move(*first);
    sets.erase(first);
    const auto second = first_of();
    join(joined, std::move(*second), groups);
    *second = std::move(joined);
  };
  const auto most = [&] { return std::ranges::max_element(sets, {}, &PlannedSet::least); };
  const auto smallest = [&] { return std::ranges::min_element(sets, {}, &PlannedSet::groups); };
  while (sets.size() > 1 && all() > groups && most()->least > 1) join_two(most);
  // One that gets no group would have the whole GPU.
  while (sets.size() > std::max(groups, 1U)) join_two(smallest);
}

}  // namespace gpushare
