// SPDX-License-Identifier: Apache-2.0
// SloSizer: from what each tenant needs to sets of SMs, and how large each is.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "sched/slo/sizer.h"
#include "sched/spatial/group_division.h"

namespace gpushare {
namespace {

// A response that is longer by kClearly makes it worth while to move groups, if it takes more than
// the part kNear of its target.
constexpr double kClearly = 1.3, kNear = 0.7;

}  // namespace

// If there is room, each tenant has a set of its own. Otherwise those without a target share one,
// if the others can then have sets of their own. Otherwise the others share some sets too, and
// those without a target share one if no more is left.
SloSizer::Division SloSizer::divide(Members served, std::vector<uint32_t> weights) {
  const bool counts =
      std::ranges::any_of(served, [](const Served* one) { return one->memory->is_fresh; });
  const auto others = static_cast<uint32_t>(weights.size());
  uint32_t alone = 0;
  for (const Served* const one : served) alone += one->memory->demand;

  Division division;
  const uint32_t least = others > 0 && groups_ > 1 ? 1 : 0;  // groups, for the others
  division.packs = pack(served, groups_ - least, counts);
  const auto taken =
      std::accumulate(division.packs.begin(), division.packs.end(), uint64_t{0},
                      [](uint64_t sum, const Pack& pack) { return sum + pack.demand; });
  // Tenants without a target that share only because those with one did not go on sharing until the
  // others have fitted for a while.
  const bool fits_apart = alone + others <= groups_ ||
                          (division.packs.size() < served.size() && taken + others <= groups_);
  rest_fitted_ = fits_apart ? rest_fitted_ + (counts || served.empty()) : 0;
  rest_shares_ = others > 1 && (!fits_apart || (rest_shares_ && rest_fitted_ < PackHistory::kCalm));
  if (rest_shares_) weights.assign(1, 1);
  const auto reserved = static_cast<uint32_t>(weights.size());
  const auto sets = static_cast<uint32_t>(division.packs.size());
  const bool do_share = sets < served.size();
  const Sets members = sets_of(served, division.packs);
  const uint32_t available = groups_ - std::min(reserved, groups_ - std::min(groups_, sets));
  uint64_t wanted = 0;
  std::vector<GroupDemand> demands;
  demands.reserve(sets);
  for (uint32_t set = 0; set < sets; ++set) {
    // A pack that misses a target with any number of groups demands more than anybody may have.
    const uint32_t demand = std::min(division.packs[set].demand, most_of_all(members[set]));
    wanted += division.packs[set].demand;
    demands.push_back({demand, static_cast<uint32_t>(members[set].size())});
  }
  division.given = do_share && wanted > available && sets <= available
                       ? divide_too_few(members, demands, available)
                       : divide_max_min(available, demands);
  if (weights.empty() && do_share)
    division.given = spread(members, std::move(division.given), available);
  for (uint32_t set = 0; set < sets; ++set)
    division.packs[set].demand = demand_in_full(members[set], division.packs[set].demand);
  const uint32_t left = groups_ - std::accumulate(division.given.begin(), division.given.end(), 0U);
  division.rest = divide_in_proportion(left, weights, 1);
  return division;
}

// Returns what the set would need if none of its members' targets were given up.
uint32_t SloSizer::demand_in_full(Members members, uint32_t demand) const {
  if (std::ranges::all_of(members, [](const Served* one) { return one->given_up == 0; }))
    return demand;
  for (Served* const one : members) give_up(*one, 0);
  const uint32_t full = demand_of_all(members);
  return full == PackNeeds::kNever ? most_of_all(members) + 1 : full;
}

SloSizer::Sets SloSizer::sets_of(Members served, const std::vector<Pack>& packs) {
  Sets sets;
  for (const Pack& pack : packs) {
    sets.emplace_back();
    for (const uint32_t place : pack.members) sets.back().push_back(served[place]);
  }
  return sets;
}

// Gives group after group to the set that wants it most, until all are given or no set wants one.
// `urge(set, groups)` says how much a set that has so many groups wants one more; it wants none
// when that is not above 0. Returns the number of groups that are left.
template <class Urge>
uint32_t SloSizer::give_one_by_one(std::vector<uint32_t>& groups, uint32_t more, const Urge& urge) {
  for (; more > 0; --more) {
    double most = 0;
    size_t which = groups.size();
    for (size_t i = 0; i < groups.size(); ++i) {
      const double now = urge(i, groups[i]);
      if (now <= most) continue;
      most = now;
      which = i;
    }
    if (which == groups.size()) return more;
    ++groups[which];
  }
  return 0;
}

// Divides too few groups among sets that are shared, in three steps. First each set gets so many
// that none of its queues grows for ever, beginning with those that need fewest for that. Then
// groups go to the sets that have less than their part by heads, then to any. In the last two steps
// the set that misses its target by most is the next, and none gets more than it demands. The queue
// of a set that is not measured is not known: it gets its part by heads.
std::vector<uint32_t> SloSizer::divide_too_few(const Sets& sets,
                                               std::span<const GroupDemand> demands,
                                               uint32_t total) const {
  uint32_t heads = 0, left = total - static_cast<uint32_t>(sets.size());
  std::vector<std::pair<uint32_t, size_t>> cures;  // (groups, place of the set)
  for (size_t i = 0; i < sets.size(); ++i) {
    heads += demands[i].heads;
    if (const uint32_t groups = fewest_without_end(sets[i], demands[i].groups); groups > 0)
      cures.emplace_back(groups, i);
  }
  std::ranges::sort(cures);
  std::vector<uint32_t> given(sets.size(), 1);
  for (const auto& [groups, i] : cures) {
    if (groups - 1 > left) break;
    given[i] = groups;
    left -= groups - 1;
  }
  const std::vector<uint32_t> cured = given;
  const auto missed = [&](size_t i, uint32_t groups) {
    if (groups >= demands[i].groups) return 0.0;
    const double response = response_of_set(sets[i], groups);
    return response > 0 ? response : static_cast<double>(demands[i].groups) / groups;
  };
  left = give_one_by_one(given, left, [&](size_t i, uint32_t groups) {
    return groups * heads < total * demands[i].heads ? missed(i, groups) : 0;
  });
  give_one_by_one(given, left, missed);
  std::vector<uint32_t> most;
  for (const GroupDemand& demand : demands) most.push_back(demand.groups);
  return present_or(sets, cured, most, total, missed, std::move(given));
}

// Returns the fewest groups, `most` at most, with which no queue grows for ever; 0 when there are
// none, or when it is not known.
uint32_t SloSizer::fewest_without_end(Members members, uint32_t most) {
  if (!is_known(members)) return 0;
  for (uint32_t groups = 1; groups <= most; ++groups)
    if (std::isfinite(worst_of(members, groups))) return groups;
  return 0;
}

// When services share sets and nobody else is there, they get what is left too, because how long a
// request takes beside others is known less well than how long it takes alone. The next group goes
// to the set with the member that has least to spare. The present division stays unless it is
// clearly worse.
std::vector<uint32_t> SloSizer::spread(const Sets& sets, std::vector<uint32_t> given,
                                       uint32_t total) const {
  std::vector<uint32_t> most;
  for (const auto& members : sets) most.push_back(most_of_all(members));
  const auto urge = [&](size_t i, uint32_t groups) {
    if (groups >= most[i]) return 0.0;
    const double response = response_of_set(sets[i], groups);
    return response_of_set(sets[i], groups + 1) < response ? response : 0;
  };
  const std::vector<uint32_t> least = given;
  give_one_by_one(given, total - std::accumulate(given.begin(), given.end(), 0U), urge);
  return present_or(sets, least, most, total, urge, std::move(given));
}

// Returns the present division, with what is left of `total` added, if that is within the bounds
// and hardly worse than `other`; otherwise `other`.
template <class Urge>
std::vector<uint32_t> SloSizer::present_or(const Sets& sets, const std::vector<uint32_t>& least,
                                           std::span<const uint32_t> most, uint32_t total,
                                           const Urge& urge, std::vector<uint32_t> other) const {
  std::vector<uint32_t> present;
  uint32_t left = total;
  for (size_t i = 0; i < sets.size(); ++i) {
    const uint32_t groups = groups_of_all(sets[i]);
    if (groups < least[i] || groups > most[i] || groups > left) return other;
    present.push_back(groups);
    left -= groups;
  }
  give_one_by_one(present, left, urge);
  return is_hardly_worse(sets, present, other) ? present : other;
}

bool SloSizer::is_hardly_worse(const Sets& sets, const std::vector<uint32_t>& present,
                               const std::vector<uint32_t>& other) {
  for (size_t i = 0; i < sets.size(); ++i) {
    const double response = response_of_set(sets[i], present[i]);
    if (response > kNear && response > response_of_set(sets[i], other[i]) * kClearly) return false;
  }
  return true;
}

std::vector<Pack> SloSizer::pack(Members served, uint32_t available, bool counts) {
  std::vector<uint32_t> ids;
  ids.reserve(served.size());
  for (const Served* const one : served) ids.push_back(one->tenant->id);
  std::vector<Served*> members;
  const auto at = [&](std::span<const uint32_t> places) -> Members {
    members.clear();
    for (const uint32_t place : places) members.push_back(served[place]);
    return members;
  };
  // A tenant that has a set of its own is measured there: its demand is known.
  const auto alone = [&](uint32_t place) {
    const Served& one = *served[place];
    const Members only = at(std::span(&place, 1));
    if (!can_share(one) || (groups_of_all(only) > 0 && one.given_up == 0))
      return one.memory->demand;
    const uint32_t demand = demand_of_all(only);
    return demand == PackNeeds::kNever ? most_of(*one.tenant) : demand;
  };
  const auto binding = [&](std::span<const uint32_t> places) {
    const Served* const found = this->binding(at(places));
    const auto place =
        std::ranges::find(places, found, [&](uint32_t member) { return served[member]; });
    return place == places.end() ? PackNeeds::kNever : *place;
  };
  const PackNeeds needs{
      .apart = [&](uint32_t place) { return served[place]->memory->demand; },
      .alone = alone,
      .together = [&](std::span<const uint32_t> places) { return demand_of_all(at(places)); },
      .can_share = [&](uint32_t place) { return can_share(*served[place]); },
      .binding = binding,
      .spare = [&](bool has_spare) { has_spare_ = has_spare; },
      .give_up = [&](uint32_t place, int notches) { give_up(*served[place], notches); }};
  return packs_.decide(ids, available, needs, counts);
}

}  // namespace gpushare
