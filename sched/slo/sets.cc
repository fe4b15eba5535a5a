// SPDX-License-Identifier: Apache-2.0
// SloSizer: what tenants that share a set take there, and how large it must be.
#include <algorithm>
#include <cmath>
#include <limits>
#include <ranges>

#include "sched/slo/sizer.h"

namespace gpushare {
namespace {

constexpr double kLeastIdle =
    1e-9;  // stands for no idle time, where there is more work than can be done
constexpr double kNotch = 1.25;  // a target that is given up by one notch is longer by this factor

}  // namespace

// Returns the groups that the members need together; PackNeeds::kNever when they cannot share, or
// when one of them would miss its target even with all groups. The knee of one is no limit for all.
uint32_t SloSizer::demand_of_all(Members members) const {
  if (!std::ranges::all_of(members, [](const Served* one) { return can_share(*one); }))
    return PackNeeds::kNever;
  const uint32_t most = most_of_all(members), present = groups_of_all(members);
  const auto all = std::views::iota(1U, most + 1);
  const auto found = std::ranges::partition_point(
      all, [&](uint32_t groups) { return worst_of(members, groups) > aim_in_set(); });
  if (found == all.end()) return PackNeeds::kNever;
  if (present == 0 || present > most) return *found;
  return beside_band(worst_of(members, present), most_in_set(), band_in_set(), *found, present);
}

uint32_t SloSizer::most_of_all(Members members) const {
  if (members.size() == 1) return most_of(*members.front()->tenant);
  uint32_t most = groups_;
  for (const Served* const one : members)
    if (one->tenant->most > 0) most = std::min(most, one->tenant->most);
  return most;
}

// Returns the size of the set that the members, and nobody else, have now; 0 when there is none.
uint32_t SloSizer::groups_of_all(Members members) const {
  const Served& first = *members.front();
  const uint32_t set = first.memory->set, groups = first.tenant->groups;
  const auto sharers = sharers_.find(set);
  if (set == kNoSet || sharers == sharers_.end() || sharers->second != members.size()) return 0;
  const bool is_same = std::ranges::all_of(members, [&](const Served* one) {
    return one->tenant->groups == groups && one->memory->set == set;
  });
  return is_same ? groups : 0;
}

bool SloSizer::can_share(const Served& one) {
  return one.tenant->can_share && !one.seconds.empty() && rate(*one.memory) >= 0;
}

bool SloSizer::is_known(Members members) {
  return std::ranges::none_of(members, [](const Served* one) { return one->seconds.empty(); });
}

// Returns the longest expected response among the members of a set, in parts of their targets; 0
// when it is not known. A queue without an end counts as a large response that falls with the
// number of groups, so that more groups still count as better.
double SloSizer::response_of_set(Members members, uint32_t groups) {
  constexpr double kEndless = 1e6;
  if (!is_known(members)) return 0;
  const double worst = worst_of(members, groups);
  return std::isfinite(worst) ? worst : kEndless / groups;
}

// Calls see(member, its expected response in parts of its target) for each member of a set of so
// many groups.
template <class See>
void SloSizer::see_each(Members members, uint32_t groups, const See& see) {
  double all = 0, kernels = 0;  // kernels: mean seconds of the one at work when a request comes
  for (const Served* const one : members) {
    all += load(*one, groups);
    kernels += load(*one, groups) * one->seconds[groups - 1] / one->memory->launches;
  }
  for (const Served* const one : members) {
    const Memory& memory = *one->memory;
    const double own = load(*one, groups), others = all - own;
    const double alone = one->seconds[groups - 1], idle = std::max(1 - others, kLeastIdle);
    const double blocked = waits(memory) * (kernels - own * alone / memory.launches) / idle;
    const double service = std::max(alone / idle, alone + blocked);
    see(*one, others < kFullLoad ? response(memory, service) / one->target
                                 : std::numeric_limits<double>::infinity());
  }
}

// Returns the longest expected response of the members, in parts of their targets.
double SloSizer::worst_of(Members members, uint32_t groups) {
  double worst = 0;
  see_each(members, groups,
           [&](const Served&, double response) { worst = std::max(worst, response); });
  return worst;
}

// Returns the member because of which the set needs as many groups as it does; nullptr when there
// is too much work for any number of groups.
const SloSizer::Served* SloSizer::binding(Members members) const {
  if (!is_known(members)) return nullptr;
  uint32_t groups = most_of_all(members);
  if (!std::isfinite(worst_of(members, groups))) return nullptr;
  while (groups > 1 && worst_of(members, groups) <= aim_in_set()) --groups;
  double worst = 0;
  const Served* found = nullptr;
  see_each(members, groups, [&](const Served& one, double response) {
    if (response <= worst) return;
    worst = response;
    found = &one;
  });
  return found;
}

void SloSizer::give_up(Served& one, int notches) {
  one.given_up = notches;
  one.target = slo_seconds(*one.tenant) * std::pow(kNotch, notches);
}

// Returns the part of the time in which it works, if it is alone on so many groups.
double SloSizer::load(const Served& one, uint32_t groups) {
  const double rate = SloSizer::rate(*one.memory);
  return rate < 0 ? 1 : std::min(rate * one.seconds[groups - 1], 1.0);
}

// Returns the requests a second; below 0 for a loop that never idles, and when it is not known.
double SloSizer::rate(const Memory& memory) {
  return memory.rate >= 0 ? memory.rate : memory.completions;
}

// Returns how often a request waits for a whole kernel of another member that always works.
double SloSizer::waits(const Memory& memory) { return std::max(memory.launches / 2, 1.0); }

}  // namespace gpushare
